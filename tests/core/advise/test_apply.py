"""Changed copies are valid ONNX, compute what they should, and plan as the advice expects."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.advise.activations import TARGETS, advise_activations
from core.advise.advice import Deepen, SetBatch, Widen
from core.advise.apply import apply
from core.advise.deepen import advise_deepening
from core.advise.file import open_file, save
from core.advise.shapes import advise_shapes
from core.errors import ModelError
from core.fusion.patterns import _ACTIVATIONS
from core.importer.samples.builder import Builder
from core.session import open_model
from tests.core.advise import models
from tests.core.graph.equivalence import compare, run_model


def assert_keeps(path, changed, batch=3):
    """Valid ONNX of the same outputs for the same inputs."""
    onnx.checker.check_model(changed, full_check=True)
    before = onnx.load(path)
    data = models.feeds(before, batch)
    compare(run_model(before, data), run_model(changed, data), 1e-4, 1e-5)


@pytest.mark.parametrize("new", TARGETS)
@pytest.mark.parametrize("opset", [13, 20])
def test_every_activation_is_exchanged_in_the_file_and_in_the_plan(tmp_path, subject, opset, new):
    """The function is that of the definition, and the planner fuses it as the advice priced it."""
    path = models.spelled_out(tmp_path / "spelled.onnx", opset)
    before = subject(path)
    for advice in advise_activations(before):
        if advice.change.op != new:
            continue
        changed = apply(advice.change, path)
        onnx.checker.check_model(changed, full_check=True)
        other = models.saved(changed, tmp_path / "changed.onnx")
        wanted = {w.key for t in advice.ways[0].terms for w in t.after}
        assert wanted <= set(open_model(str(other)).plan.workloads), advice.id
    assert {a.change.op for a in advise_activations(before)} == set(TARGETS)


@pytest.mark.parametrize("new", TARGETS)
def test_an_exchanged_activation_computes_the_other_function(tmp_path, subject, new):
    b = Builder("one", 13)
    b.node("LeakyRelu", "y", b.linear("fc", b.input("data", 8), 8, 8), alpha=0.3)
    path = models.saved(b.model({"y": [8]}), tmp_path / "one.onnx")
    advice = next(a for a in advise_activations(subject(path)) if a.change.op == new)
    changed = apply(advice.change, path)
    changed.graph.output.append(onnx.helper.make_tensor_value_info("fc", onnx.TensorProto.FLOAT, ["N", 8]))
    out = run_model(changed, models.feeds(changed))
    np.testing.assert_allclose(out["y"], _ACTIVATIONS[new](out["fc"].astype(np.float64)), rtol=1e-5, atol=1e-6)


def test_a_1x1_is_added_as_the_identity(tmp_path, subject):
    path = models.convnet(tmp_path / "net.onnx", 16)
    found = advise_deepening(subject(path))
    assert found
    for advice in found:
        changed = apply(advice.change, path)
        assert_keeps(path, changed)
        other = open_model(str(models.saved(changed, tmp_path / "changed.onnx")))
        apart = advice.ways[[w.label for w in advice.ways].index("as a kernel of its own")]
        keys = {w.key for t in apart.terms for w in t.after}
        assert keys <= set(other.plan.workloads)
        from core.fusion.propose import propose

        together = advice.ways[1 - advice.ways.index(apart)].terms[0].after[0]
        assert together.key in {p.workload.key for p in propose(other.graph, other.plan)}


@pytest.mark.parametrize("batch_norm", [True, False])
def test_channels_are_filled_up_with_zeros_wherever_they_go(tmp_path, subject, batch_norm):
    path = models.convnet(tmp_path / "net.onnx", 12, batch_norm)
    found = {a.change.node: a for a in advise_shapes(subject(path)) if a.change}
    assert set(found) == {"conv1", "fc"}
    conv = found["conv1"]
    assert conv.change.width == 16 and set(conv.nodes) == {"conv1", "conv2", "fc"}
    changed = apply(conv.change, path)
    assert_keeps(path, changed)
    other = open_model(str(models.saved(changed, tmp_path / "changed.onnx")))
    assert {w.key for t in conv.ways[0].terms for w in t.after} == set(other.plan.workloads)


def test_a_product_whose_result_can_not_be_widened_is_cropped(tmp_path, subject):
    path = models.convnet(tmp_path / "net.onnx", 16)
    (advice,) = advise_shapes(subject(path))
    assert (advice.change, dict(advice.facts)["behind it"]) == (
        Widen("fc", 16), "a Slice back to 10, which the price does not hold",
    )  # fmt: skip
    changed = apply(advice.change, path)
    assert_keeps(path, changed)
    assert any(n.op_type == "Slice" for n in changed.graph.node)


BETWEEN = ["Relu", "Sigmoid", "Softplus", "Tanh", "HardSwish", "Exp", "Identity", "MaxPool", "Add"]


@settings(max_examples=15, deadline=None)
@given(
    width=st.integers(1, 20),
    more=st.integers(1, 9),
    acts=st.lists(st.sampled_from(BETWEEN), max_size=4),
    seed=st.integers(0, 9),
)
def test_whatever_lies_between_wider_channels_change_nothing(tmp_path_factory, width, more, acts, seed):
    b = Builder("random", seed=seed)
    x = b.conv("first", b.input("data", 8, 6, 6), 8, width, 3, bias=True)
    for i, act in enumerate(acts):
        if act == "MaxPool":
            x = b.node(act, f"n{i}", x, kernel_shape=[2, 2], strides=[1, 1])
        elif act == "Add":
            x = b.node(act, f"n{i}", x, b.spread(f"c{i}", (width, 1, 1), 1.0))
        else:
            x = b.node(act, f"n{i}", x)
    b.conv("last", x, width, 8, 1)
    path = tmp_path_factory.mktemp("r") / "random.onnx"
    side = 6 - acts.count("MaxPool")
    models.saved(b.model({"last": [8, side, side]}), path)
    assert_keeps(path, apply(Widen("first", width + more), path))


@pytest.mark.parametrize("between", ["Softmax", "DepthToSpace", "output"])
def test_channels_that_mix_are_refused_with_the_place(tmp_path, between):
    b = Builder("mixing")
    x = b.conv("first", b.input("data", 8, 4, 4), 8, 12, 1, bias=True)
    if between == "Softmax":
        x = b.node("Softmax", "mix", x, axis=1)
    if between == "DepthToSpace":
        x = b.node("DepthToSpace", "mix", x, blocksize=2)
    shape = [3, 8, 8] if between == "DepthToSpace" else [12, 4, 4]
    path = models.saved(b.model({x: shape}), tmp_path / "mixing.onnx")
    with pytest.raises(ModelError, match=r"first can't be widened in the file: .*(mix|first)"):
        apply(Widen("first", 16), path)


def test_a_result_is_cropped_behind_its_activation(tmp_path, subject):
    """The activation stays in the epilogue, as the price says."""
    b = Builder("click")
    b.node("Sigmoid", "click", b.linear("fc", b.input("data", 16), 16, 1))
    path = models.saved(b.model({"click": [1]}), tmp_path / "click.onnx")
    (advice,) = advise_shapes(subject(path))
    changed = apply(advice.change, path)
    assert_keeps(path, changed)
    other = open_model(str(models.saved(changed, tmp_path / "changed.onnx")))
    assert {w.key for t in advice.ways[0].terms for w in t.after} == set(other.plan.workloads)


def test_a_vocabulary_tied_to_the_embedding_gets_weights_of_its_own(tmp_path, subject):
    b = Builder("tied")
    table = b.spread("wte", (21, 16), 0.3)
    x = b.node("Relu", "act", b.node("Add", "sum", b.input("data", 16), b.node("Gather", "row", table, b.weight(
        "first", np.array(3, np.int64)), axis=0)))  # fmt: skip
    b.node("Gemm", "logits", x, table, transB=1)
    path = models.saved(b.model({"logits": [21]}), tmp_path / "tied.onnx")
    (advice,) = advise_shapes(subject(path))
    assert advice.change == Widen("logits", 24)
    changed = apply(advice.change, path)
    assert_keeps(path, changed)
    shapes = {t.name: tuple(t.dims) for t in changed.graph.initializer}
    assert shapes["wte"] == (21, 16) and (24, 16) in shapes.values()


def test_another_batch_is_written_and_runs(tmp_path):
    path = models.convnet(tmp_path / "net.onnx", 16)
    assert_keeps(path, apply(SetBatch(5), path), 5)


def test_a_tensor_that_the_file_does_not_have_is_told(tmp_path):
    path = models.convnet(tmp_path / "net.onnx", 16)
    with pytest.raises(ModelError, match="no tensor 'nowhere'"):
        apply(Deepen((("nowhere", 16),), True), path)


def test_external_weights_come_along(tmp_path):
    path = models.convnet(tmp_path / "net.onnx", 16)
    whole = onnx.load(path)
    apart = tmp_path / "apart.onnx"
    onnx.save(whole, apart, save_as_external_data=True, location="apart.data", size_threshold=0)
    changed = apply(Deepen((("relu1", 16),), True), apart)
    save(changed, tmp_path / "elsewhere" / "changed.onnx")
    assert_keeps(path, onnx.load(tmp_path / "elsewhere" / "changed.onnx"))


def test_an_invalid_model_is_not_written(tmp_path):
    file = open_file(models.convnet(tmp_path / "net.onnx", 16))
    del file.proto.graph.node[0]
    with pytest.raises(ModelError, match="not valid ONNX"):
        save(file.proto, tmp_path / "broken.onnx")
    assert not (tmp_path / "broken.onnx").exists()


def test_repvgg_a0_deepened_is_the_papers_augmented_network(tmp_path, subject):
    """In what it runs; and it still computes what RepVGG-A0 does."""
    before = subject("repvgg-a0", 1)
    places = tuple(p for a in advise_deepening(before) for p in a.change.places)
    changed = apply(Deepen(places, True), "repvgg-a0")
    save(changed, tmp_path / "aug.onnx")
    data = models.feeds(changed, 1)
    compare(run_model(open_file("repvgg-a0").proto, data), run_model(changed, data), 1e-4, 1e-5)
    deepened, published = (set(open_model(m, 1).plan.workloads) for m in (str(tmp_path / "aug.onnx"), "repvgg-a0-aug"))
    assert {key.split()[1] for key in published - deepened} == {"49x1280x1280"}  # too wide for a second in one kernel
