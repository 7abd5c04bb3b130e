"""Imports the operators of onnxruntime, which its quantizer, its optimizer and its exporters write."""

from functools import partial

from glenside.importers.onnx.node import onnx_operator

DOMAIN = "com.microsoft"

runtime_operator = partial(onnx_operator, domain=DOMAIN)
"""Registers the meaning of operators of onnxruntime's own domain."""
