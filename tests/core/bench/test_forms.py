"""The rows of the suites `padding` and `epilogue`."""

from dataclasses import replace

import pytest

from core.bench import padding
from core.bench.epilogues import FUSED, PLAIN, SEPARATE, with_forms
from core.bench.padding import PADDED, UNPADDED, row
from core.build.artifact import BuiltKernel
from core.measure.measurement import Measurement, Phase
from core.search.rank import rank
from core.tuner.events import WorkloadFinished
from core.tuner.options import Options
from templates.epilogue import parse_epilogue
from templates.gpu import KNOWN_GPUS
from templates.workload import GemmWorkload

H200 = KNOWN_GPUS["h200"]
WORKLOAD = GemmWorkload(1280, 3072, 768, epilogue=parse_epilogue("bias+gelu_erf"))


def measured(candidate: str, us: float, phase: Phase = Phase.SCREEN, source: str = "template") -> Measurement:
    return Measurement("w", candidate, phase, (us,), 1e-4, 1e-3, source=source)


def test_padded_kernels_are_set_against_those_that_read_the_operands_as_they_lie() -> None:
    found = row(
        "a",
        [
            measured("sm90_padded_x", 9.0), measured("sm90_padded_x", 10.0, Phase.FINAL), measured("sm80_conv_y", 16.0),
            measured("sm80_conv_z", 17.0), measured("", 12.0, Phase.FINAL, "cudnn 9.19"),
        ],
    )  # fmt: skip
    assert (found.ours_us, found.peer_us, found.ratio) == (10.0, 16.0, 1.6)
    assert {name: form.us for name, form in found.forms.items()} == {UNPADDED: 16.0, PADDED: 10.0, "vendor": 12.0}
    assert row("a", []).ratio is None


def test_both_forms_are_measured_anew_with_the_options_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(Exception):
        pass

    def asked(work: object, options: Options, *_: object, **__: object) -> None:
        raise Asked(options)

    monkeypatch.setattr(padding, "local_job", asked)
    with pytest.raises(Asked) as told:
        padding.measure("padding", {"a": WORKLOAD}, lambda event: None, Options(budget_minutes=3, vendor=False))
    assert told.value.args == (Options(budget_minutes=3, vendor=False, retune=True),)


class Builder:
    def build(self, kernels, started=None):
        self.asked = list(kernels)
        for kernel in kernels:
            yield kernel, BuiltKernel.__new__(BuiltKernel)


class Finals:
    """Each kernel's time by how much of the chain it fuses."""

    def final(self, workload, finalists, vendor):
        self.workload = workload
        times = {"identity": 15.0, "bias": 9.9, "bias+gelu_erf": 10.0}
        return [measured(c.name, times[str(c.kernel.epilogue)], Phase.FINAL) for c, _ in finalists]


def test_the_winner_is_measured_fused_separate_and_without_its_activation() -> None:
    winner = rank(WORKLOAD, H200).candidates[0].candidate
    finished = WorkloadFinished(
        WORKLOAD.key, replace(measured(winner.name, 10.0), workload=WORKLOAD.key), None, 1, 0, False
    )
    builder, finals = Builder(), Finals()
    found = with_forms("a", WORKLOAD, finished, H200, builder, finals)
    assert {name: form.us for name, form in found.forms.items()} == {SEPARATE: 15.0, PLAIN: 9.9, FUSED: 10.0}
    assert [str(k.epilogue) for k in builder.asked] == ["bias+gelu_erf", "identity", "bias"]
    assert len({k.params for k in builder.asked}) == 1 and str(finals.workload.epilogue) == "bias"
    assert with_forms("a", WORKLOAD, None, H200, builder, finals).forms == {}
