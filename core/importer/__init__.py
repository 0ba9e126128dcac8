"""From an ONNX file to a Graph."""
