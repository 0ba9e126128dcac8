"""Outcomes and identities as JSON values, between the measuring process and its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from core.device import GpuIdentity
from core.measure.measurement import Failure, GpuState, Measurement, Outcome, Phase, Stage
from templates.gpu import GpuSpec


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    kind = "failure" if isinstance(outcome, Failure) else "measurement"
    return {"kind": kind, **asdict(outcome)}


def outcome_from_dict(data: Mapping[str, Any]) -> Outcome:
    """Raises KeyError, TypeError or ValueError on anything `outcome_to_dict` did not write."""
    values = dict(data)
    kind = values.pop("kind")
    if kind == "failure":
        return Failure(**{**values, "stage": Stage(values["stage"])})
    if kind != "measurement":
        raise ValueError(f"no outcome is called {kind!r}")
    return Measurement(
        **{
            **values,
            "phase": Phase(values["phase"]),
            "samples_us": tuple(float(v) for v in values["samples_us"]),
            "state": GpuState(**values["state"]),
        }
    )


def identity_to_dict(identity: GpuIdentity) -> dict[str, Any]:
    return asdict(identity)


def identity_from_dict(data: Mapping[str, Any]) -> GpuIdentity:
    """Raises KeyError or TypeError on anything `identity_to_dict` did not write."""
    return GpuIdentity(**{**data, "spec": GpuSpec(**data["spec"])})
