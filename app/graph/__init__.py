"""The graph: layout without Qt, and its painting, hit-testing and gestures."""
