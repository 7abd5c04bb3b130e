"""Programs for other tools: ONNX, which any runtime executes, and JSON."""
