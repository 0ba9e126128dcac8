"""Advice on small models with records that a formula made."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from core.advise.subject import Subject, subject_of
from core.gains import Timed
from core.records.store import Records
from core.session import open_model
from templates.gpu import KNOWN_GPUS

H200 = KNOWN_GPUS["h200"]


@pytest.fixture
def no_records(tmp_path) -> Records:
    return Records(tmp_path / "records.sqlite", shipped=[])


@pytest.fixture
def subject(no_records) -> Callable[..., Subject]:
    """`times` stands in for the records: a function from workload key to microseconds, or None."""

    def make(model: object, batch: int | None = None, times: Callable[[str], float | None] | None = None) -> Subject:
        made = subject_of(open_model(str(model), batch), H200, no_records)
        if times is None:
            return made

        def timed(key: str) -> Timed | None:
            us = times(key)
            return None if us is None else Timed(us, us, "run")

        def history(key: str) -> dict[str, float]:
            us = times(key)
            return {} if us is None else {"run": us}

        return replace(made, times=timed, history=history)

    return make
