"""ONNX files as programs: every node becomes terms of our operators, through the builder."""

from glenside.importers.onnx.model import load_onnx, program_of_model

__all__ = ["load_onnx", "program_of_model"]
