"""Imports ONNX operators: a function each, in modules by subject."""
