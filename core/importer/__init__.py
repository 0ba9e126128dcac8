"""From ONNX files and built-in samples to the graph IR; core.importer.normalise states the form of each operator."""
