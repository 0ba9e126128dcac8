"""What advice says and what it costs."""

from dataclasses import replace

import pytest

from core.advise.advice import Kind, Price, SetBatch, Term, priced
from core.advise.batches import advise_batches, knees, rebatched
from core.advise.deepen import advise_deepening
from core.advise.find import advise, to_measure
from core.search.waves import waves_of
from core.session import open_model
from templates.family import Candidate, Kernel, Launch
from templates.workload import GemmWorkload, parse_workload
from tests.core.advise import models
from tests.core.advise.conftest import H200
from tests.core.tuning_stubs import RELU, gemm


def flops_us(key: str) -> float:
    """1 us and the time of the arithmetic at 100 TFLOP/s."""
    return 1.0 + parse_workload(key).flops / 1e8


def history(**figures: dict[str, float]):
    """m8={"run": us}: the figures of gemm(8), newest run first."""
    return lambda key: figures.get(f"m{parse_workload(key).m}", {})


def test_a_price_is_the_sum_over_regions():
    way = priced("x", [Term(3, (gemm(8),), (gemm(16),))], history(m8={"a": 2.0}, m16={"a": 3.5}))
    assert way.price == Price(6.0, 10.5, (), 1) and way.price.gain_us == -4.5
    scaled = priced("x", [Term(3, (gemm(8),), (gemm(16),), 0.5)], history(m8={"a": 2.0}, m16={"a": 3.5}))
    assert scaled.price.gain_us == 6.0 - 5.25


def test_figures_of_two_runs_give_no_gain():
    apart = history(m8={"a": 2.0}, m16={"b": 3.5})
    price = priced("x", [Term(3, (gemm(8),), (gemm(16),))], apart).price
    assert (price.before_us, price.after_us, price.runs, price.gain_us) == (6.0, 10.5, 2, None)
    each_in_one = [Term(1, (gemm(8),), (gemm(8),)), Term(1, (gemm(16),), (gemm(16),))]
    assert priced("x", each_in_one, apart).price.gain_us == 0.0


def test_the_newest_run_that_holds_both_sides_is_taken():
    """A later run of the model alone takes no price away."""
    known = history(m8={"late": 9.0, "both": 2.0, "old": 1.0}, m16={"both": 3.0, "old": 4.0})
    assert priced("x", [Term(1, (gemm(8),), (gemm(16),))], known).price == Price(2.0, 3.0, (), 1)


def test_what_no_record_holds_is_missing_and_the_estimate_stands_apart():
    way = priced("x", [Term(2, (gemm(8),), (gemm(16),))], history(m8={"a": 2.0}), lambda w: float(w.m))
    assert way.price == Price(4.0, None, (gemm(16).key,), 1, -16.0) and way.price.gain_us is None
    empty = priced("x", [], history())
    assert empty.price == Price(None, None)


def test_all_kinds_on_a_small_model(tmp_path, subject):
    path = models.convnet(tmp_path / "net.onnx", 12)
    found = advise(subject(path, 2, flops_us))
    assert {a.kind for a in found} == {Kind.ACTIVATION, Kind.SHAPE, Kind.ROOFLINE, Kind.BATCH}
    gains = [a.price.gain_us for a in found if a.price.gain_us]
    assert gains == sorted(gains, reverse=True)
    assert len({a.id for a in found}) == len(found)
    assert to_measure([a for a in found if a.kind is not Kind.ROOFLINE]) == []
    wanted = to_measure(advise(subject(path, 2)))
    assert len({w.key for w in wanted}) == len(wanted)
    assert set(subject(path, 2).plan.workloads) <= {w.key for w in wanted}


def test_only_the_kinds_asked_for(tmp_path, subject):
    found = advise(subject(models.convnet(tmp_path / "net.onnx")), [Kind.ACTIVATION])
    assert found and {a.kind for a in found} == {Kind.ACTIVATION}


def test_a_1x1_in_one_kernel_is_priced_beside_one_in_two(tmp_path, subject):
    path = models.convnet(tmp_path / "net.onnx", 64)
    plain, fused = subject(path, 8, flops_us), subject(path, 8, lambda key: 1.0 if "then" in key else flops_us(key))
    for advice in advise_deepening(plain):
        assert advice.price.gain_us < 0 and {w.label for w in advice.ways} == {
            "in one kernel (persistent)", "as a kernel of its own",
        }  # fmt: skip
    assert advise_deepening(fused)[0].ways[0].label.startswith("in one kernel")
    assert dict(advise_deepening(fused)[0].facts)["parameters added"] == "4,160"


def test_the_knees_of_a_curve():
    bend = knees([(1, 10.0), (2, 10.5), (4, 12.0), (8, 16.0), (16, 30.0), (32, 60.0)])
    assert (bend.free, bend.full) == (2, 8 if 8 / 16 >= 0.9 * 16 / 30 else 16)


def test_the_batch_advice_names_the_knee(tmp_path, subject):
    path = models.convnet(tmp_path / "net.onnx", 16)
    (advice,) = advise_batches(subject(path, 2, lambda key: 10.0 + parse_workload(key).flops / 1e6))
    assert isinstance(advice.change, SetBatch) and advice.change.batch > 2
    assert advice.ways[0].label == f"batch {advice.change.batch}" and advice.price.gain_us > 0


@pytest.mark.parametrize("model", ["mlp", "repvgg-a0", "bert-base", "dlrm"])
def test_workloads_at_another_batch_are_those_of_the_model_there(model):
    """What is measured for the curve is what the model would run."""
    at2, at6 = open_model(model, 2).plan, open_model(model, 6).plan
    scaled = [rebatched(r.workload, 2, 6) for r in at2.regions if r.workload]
    assert [w.key for w in scaled if w] == [r.workload.key for r in at6.regions if r.workload]


def test_a_batch_that_does_not_divide_is_not_guessed():
    assert rebatched(gemm(5), 2, 4) is None


def test_attention_of_one_sample_does_not_tell_where_the_next_one_lies(subject):
    made = subject("bert-base", 1)
    (attention,) = {r.workload for r in made.plan.regions if r.workload and r.workload.op == "attention"}
    assert rebatched(attention, 1, 4) is None and rebatched(attention, 1, 1) == attention
    assert advise_batches(made) == []


def test_waves_count_tiles_idle_sms_and_waste():
    kernel = Kernel("x", (("tile_m", 128), ("tile_n", 64)), RELU)
    waves = waves_of(gemm(128 * 132 + 1, 48, 64), Candidate(kernel), H200)
    assert (waves.tiles, waves.tile) == (133, (128, 64))
    assert waves.idle == pytest.approx(1 - 133 / 264) and waves.waste == pytest.approx(
        1 - (128 * 132 + 1) * 48 / (133 * 128 * 64)
    )
    assert waves_of(gemm(), Candidate(kernel, Launch(splits=2)), H200) is None
    assert waves_of(gemm(), Candidate(replace(kernel, params=(("pixels", 64),))), H200) is None
    assert isinstance(gemm(), GemmWorkload)
