"""What the canvas is told of a graph."""

from app.document import Document
from app.graph.describe import reason, tooltip
from app.graph.model import region_title


def test_boxes_are_operators_then_inputs_then_outputs(document: Document) -> None:
    model = document.model
    assert [b.title for b in model.boxes if b.node is None] == ["data", "probabilities"]
    assert len(model.boxes) == len(document.graph.nodes) + 2
    conv = model.boxes[model.index["conv1"]]
    assert conv.detail == "3x3  8 → 16"
    assert conv.family == "conv"


def test_edges_follow_tensors_both_ways_of_a_residual(document: Document) -> None:
    index, edges = document.model.index, set(document.model.edges)
    assert (index["relu1"], index["conv2"]) in edges
    assert (index["relu1"], index["add1"]) in edges
    assert all(a != b for a, b in edges)


def test_search_needs_every_word_and_looks_at_shapes_and_tensors(document: Document) -> None:
    model = document.model
    assert {model.boxes[i].title for i in model.search("conv")} == {"Conv"}
    assert [model.boxes[i].name for i in model.search("relu 2x16x14x14 r2")] == ["relu2"]
    assert model.search("   ") == []
    assert model.search("nothing like that") == []


def test_every_operator_lies_in_a_region(document: Document) -> None:
    assert all(document.region_of_box[i] >= 0 for i in document.model.index.values())
    assert document.region_of_box[-1] == -1


def test_the_tooltip_names_region_and_reason_and_escapes_names(document: Document) -> None:
    box = document.model.index["conv2"]
    region = document.region_at(box)
    assert region is not None
    text = tooltip(document, box)
    assert region.id in text
    assert region_title(region, document.graph) == "conv + bias + add + relu"
    assert reason(document, region, "conv2") in text.replace("&#x27;", "'")
    assert "not compared" not in text


def test_left_alone_nodes_give_their_own_reason(document: Document) -> None:
    node = document.plan.left_alone[0]
    region = document.region_at(document.model.index[node.node])
    assert region is not None
    assert reason(document, region, node.node) == node.reason
