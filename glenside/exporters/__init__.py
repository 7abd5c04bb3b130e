"""Programs for other tools: ONNX, which any runtime executes, functions of JAX, which SPU runs on secrets, and JSON."""
