"""The operators of onnxruntime, which its quantization, its optimizers and its exporters write; modules by subject."""

from functools import partial

from glenside.importers.onnx.node import onnx_operator

DOMAIN = "com.microsoft"

runtime_operator = partial(onnx_operator, domain=DOMAIN)
"""Registers the meaning of operators of onnxruntime's own domain."""
