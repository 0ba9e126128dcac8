"""The intermediate representation and the passes over it."""

from core.graph.ir import Graph, Node, TensorType

__all__ = ["Graph", "Node", "TensorType"]
