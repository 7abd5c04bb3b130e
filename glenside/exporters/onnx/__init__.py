"""Exports programs as ONNX models of standard operators, and to files; needs the package onnx (`glenside[onnx]`)."""

from glenside.exporters.onnx.export import export_onnx, moved, save_onnx
from glenside.exporters.onnx.graph import OPSET

__all__ = ["OPSET", "export_onnx", "moved", "save_onnx"]
