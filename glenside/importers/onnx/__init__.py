"""Imports ONNX files as programs: every node becomes terms of the language, through the builder."""

from glenside.importers.onnx.model import input_sizes, load_onnx, program_of_model

__all__ = ["input_sizes", "load_onnx", "program_of_model"]
