"""Programs as ONNX models of standard operators, and files of them; needs the package onnx (`glenside[onnx]`)."""

from glenside.exporters.onnx.export import export_onnx, moved, save_onnx
from glenside.exporters.onnx.graph import OPSET

__all__ = ["OPSET", "export_onnx", "moved", "save_onnx"]
