"""Outcomes survive the pipe."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.device import GpuIdentity
from core.measure.measurement import Failure, GpuState, Measurement, Phase, Stage
from core.measure.wire import identity_from_dict, identity_to_dict, outcome_from_dict, outcome_to_dict
from templates.gpu import KNOWN_GPUS

texts = st.text(max_size=20)
floats = st.floats(allow_nan=False)
states = st.builds(GpuState, st.integers(), st.integers(), st.integers(), floats, st.booleans())
measurements = st.builds(
    Measurement, texts, texts, st.sampled_from(Phase), st.lists(floats, min_size=1).map(tuple), floats, floats, texts,
    texts, states,
)  # fmt: skip
failures = st.builds(Failure, texts, texts, st.sampled_from(Stage), texts, texts)


@given(st.one_of(measurements, failures))
def test_outcomes_round_trip(outcome: Measurement | Failure) -> None:
    assert outcome_from_dict(json.loads(json.dumps(outcome_to_dict(outcome)))) == outcome


def test_identity_round_trips() -> None:
    identity = GpuIdentity("NVIDIA H200", 90, 132, 3201, "580.159.04", "13.0", KNOWN_GPUS["h200"])
    assert identity_from_dict(json.loads(json.dumps(identity_to_dict(identity)))) == identity


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="guess"):
        outcome_from_dict({"kind": "guess"})
