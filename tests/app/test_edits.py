"""Editing the plan: what is offered, why not, and every edit undone."""

from pathlib import Path

from app import edits
from app.document import Document
from app.format import micros
from core.session import open_model
from templates.gpu import KNOWN_GPUS
from templates.types import Residence
from tests.app import models, simulated


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


def pair_document(tmp_path: Path) -> Document:
    """fc1 - relu1 - fc2, aimed at an A100, whose families keep intermediates in registers and in shared memory."""
    document = Document(open_model(str(models.write_pair(tmp_path / "pair.onnx"))))
    document.gpu = KNOWN_GPUS["a100"]
    return document


def test_pin_split_and_reset(document: Document) -> None:
    select(document, "conv1")
    edits.split(document)
    select(document, "conv1")
    assert edits.pin_offer(document).possible
    edits.pin(document)
    assert document.undo.undoText() == "pin r0"
    assert not edits.split_offer(document).possible and "unpin" in edits.split_offer(document).reason
    assert edits.reset_offer(document).reason.endswith("1 pinned region stays.")
    edits.reset(document)
    assert document.plan.region_of("conv1").nodes == ("conv1",)  # type: ignore[union-attr]
    select(document, "conv1", "relu1")
    assert edits.fuse_offer(document).reason == "r0 is pinned; unpin it first"
    select(document, "conv1", "fc1")
    edits.pin(document)
    assert {r.id for r in document.plan.regions if r.pinned} == {r.id for r in document.selected_regions()}
    edits.pin(document)
    assert not any(r.pinned for r in document.plan.regions)
    while document.undo.canUndo():
        document.undo.undo()
    assert document.plan == document.automatic


def test_forbid_and_allow_are_steps(document: Document) -> None:
    select(document, "conv1", "relu1")
    edits.forbid(document)
    assert document.plan.region_of("relu1").nodes == ("relu1",)  # type: ignore[union-attr]
    assert not edits.forbid_offer(document).possible
    assert edits.fuse_offer(document).reason == "the plan forbids fusing conv1 + relu1; allow it first"
    select(document, "relu1")
    assert edits.allow_offer(document).reason == "Allow again: conv1 + relu1"
    edits.allow(document)
    assert document.plan == document.automatic
    document.undo.undo()
    assert document.plan.forbidden == (("conv1", "relu1"),)
    select(document, "fc1")
    assert not edits.allow_offer(document).possible


def test_a_residence_is_offered_to_pairs_that_have_a_kernel_for_it(tmp_path: Path) -> None:
    document = pair_document(tmp_path)
    select(document, "fc1", "relu1")
    assert "no pair of products" in edits.place_offer(document, Residence.RF).reason
    select(document, "fc1", "relu1", "fc2")
    assert edits.fuse_offer(document).kind == "b2b gemm"
    edits.fuse(document)
    for residence in Residence:
        assert edits.place_offer(document, residence).possible
    edits.place(document, Residence.SMEM)
    assert document.undo.undoText() == "keep r0 in smem"
    assert document.plan.regions[0].residence is Residence.SMEM
    document.undo.undo()
    assert document.plan.regions[0].residence is None
    document.gpu = KNOWN_GPUS["h200"]
    document.select_region(document.plan.regions[0])
    assert edits.place_offer(document, Residence.RF).possible


def test_plans_by_name_are_kept_switched_renamed_and_deleted_as_steps(document: Document) -> None:
    assert document.plan_title == "automatic"
    select(document, "conv1")
    edits.split(document)
    changed = document.plan
    assert document.plan_title == "edited"
    edits.keep(document, "apart")
    assert document.plan_title == "apart"
    edits.switch(document, "")
    assert document.plan == document.automatic and document.plan_title == "automatic"
    edits.switch(document, "apart")
    assert document.plan == changed
    edits.reset(document)
    assert document.plan_title == "apart, edited"
    edits.rename(document, "apart", "alone")
    assert list(document.plans.kept) == ["alone"] and document.plan_title == "alone, edited"
    edits.drop(document, "alone")
    assert not document.plans.kept and document.plan_title == "automatic"
    document.undo.undo()
    assert document.plans.kept == {"alone": changed}
    while document.undo.canUndo():
        document.undo.undo()
    assert document.plan == document.automatic and not document.plans.kept
