"""Programs as ONNX models of standard operators, and files of them; needs the package onnx (`glenside[onnx]`)."""

from glenside.exporters.onnx.export import OPSET, export_onnx
from glenside.exporters.onnx.save import save_onnx

__all__ = ["OPSET", "export_onnx", "save_onnx"]
