"""Exports programs to ONNX, for any runtime; to JAX functions, which SPU runs on secrets; and to JSON."""
