"""Editing the plan: what is offered, why not, and every edit undone."""

from app import edits
from app.document import Document
from app.format import micros
from tests.app import simulated


def select(document: Document, *names: str) -> None:
    document.select([document.model.index[n] for n in names])


def test_one_node_can_not_be_fused(document: Document) -> None:
    select(document, "conv1")
    offer = edits.fuse_offer(document)
    assert not offer.possible
    assert "two or more" in offer.reason


def test_a_whole_region_is_no_new_fusion(document: Document) -> None:
    select(document, "conv1", "relu1")
    assert "already are the region" in edits.fuse_offer(document).reason


def test_a_refused_fusion_names_reason_and_node(document: Document) -> None:
    select(document, "conv1", "relu1", "pool1")
    offer = edits.fuse_offer(document)
    assert not offer.possible
    assert offer.reason
    assert offer.offending in {"conv1", "relu1", "pool1"}


def test_split_then_fuse_and_back_through_undo(document: Document) -> None:
    original = document.plan
    select(document, "conv1")
    assert edits.split_offer(document).possible
    edits.split(document)
    assert [r.nodes for r in document.plan.regions if "conv1" in r.nodes] == [("conv1",)]
    assert document.edited
    select(document, "conv1", "relu1")
    assert edits.fuse_offer(document).possible
    edits.fuse(document)
    assert document.plan.region_of("conv1").nodes == ("conv1", "relu1")  # type: ignore[union-attr]
    assert document.undo.undoText() == "fuse 2 nodes"
    document.undo.undo()
    document.undo.undo()
    assert document.plan == original
    document.undo.redo()
    assert document.plan.region_of("conv1").nodes == ("conv1",)  # type: ignore[union-attr]


def test_reset_of_an_automatic_plan_is_no_step(document: Document) -> None:
    edits.reset(document)
    assert document.undo.count() == 0


def test_a_single_node_region_can_not_be_split(document: Document) -> None:
    select(document, "pool1")
    offer = edits.split_offer(document)
    assert not offer.possible
    assert "single node" in offer.reason


def test_selection_over_two_regions_has_no_region(document: Document) -> None:
    select(document, "conv1", "conv2")
    assert document.selected_region() is None
    assert document.selected_nodes() == ["conv1", "conv2"]
    assert not edits.split_offer(document).possible


def test_a_legal_fusion_tells_its_kind_and_what_is_known_of_its_time(document: Document) -> None:
    whole = document.plan.region_of("conv1")
    assert whole is not None and whole.workload is not None
    key = whole.workload.key
    document.start_run(replayed=True)
    document.apply(list(simulated.events(document.plan)))
    best = document.run.workloads[key].best
    assert best is not None
    document.select_region(whole)
    edits.split(document)
    select(document, "conv1", "relu1")
    offer = edits.fuse_offer(document)
    assert offer.possible and offer.kind == "conv"
    assert offer.price == f"{micros(best.us)} (replayed)."
    document.run.workloads.clear()
    assert edits.fuse_offer(document).price == "Not measured."
