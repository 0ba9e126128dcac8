"""What a record is, and how it lies in a table: plain columns, content-addressed ids.

A row's id is a hash of its other columns. Two databases that hold the same measurement hold the same row, so a merge
is a union: no duplicates, no loss, the same result in any order.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.device import GpuIdentity
from core.measure.measurement import Failure, GpuState, Measurement, Outcome, Phase, Stage
from templates.family import Candidate, candidate_from_dict, candidate_to_dict
from templates.gpu import GpuSpec
from templates.workload import parse_workload

Row = dict[str, Any]
# table -> column -> type. Every table's primary key is "id".
TABLES: dict[str, dict[str, type]] = {
    "gpus": {
        "id": str, "name": str, "sm": int, "sm_count": int, "memory_mhz": int, "driver": str, "cuda": str,
        "nvcc": str, "cutlass": str, "spec": str,
    },
    "candidates": {"id": str, "name": str, "family": str, "data": str},
    "measurements": {
        "id": str, "gpu": str, "workload": str, "candidate": str, "name": str, "source": str, "detail": str,
        "phase": str, "samples": str, "relative_l2": float, "max_abs": float, "state": str, "family_version": int,
        "flags": str, "run": str, "taken": str,
    },
    "failures": {
        "id": str, "gpu": str, "workload": str, "candidate": str, "name": str, "stage": str, "reason": str,
        "log": str, "family_version": int, "flags": str, "run": str, "taken": str,
    },
    "finished": {
        "id": str, "gpu": str, "workload": str, "families": str, "vendor": int, "run": str, "taken": str,
    },
    "searches": {"id": str, "gpu": str, "workload": str, "run": str, "kernels": int},
    "runs": {
        "id": str, "run": str, "gpu": str, "model": str, "started": str, "seconds": float, "cancelled": int,
    },
}  # fmt: skip
# What a database knows of itself; never in a file. "origins": which file the rows of a tuning run came from, and when.
LOCAL_TABLES: dict[str, dict[str, type]] = {"origins": {"id": str, "run": str, "source": str, "taken": str}}
_LOG_CHARACTERS = 16_000


@dataclass(frozen=True)
class Identity:
    """What a record holds for: the GPU with its driver, and what compiled the kernel. Versions are text."""

    gpu: GpuIdentity
    nvcc: str
    cutlass: str

    @property
    def id(self) -> str:
        return str(identity_row(self)["id"])


@dataclass(frozen=True)
class Record:
    """An outcome with everything it depends on. `candidate` is None for a vendor's kernel.

    `taken` is UTC in ISO 8601; `shipped` marks the records that come with the program.
    """

    outcome: Outcome
    identity: Identity
    candidate: Candidate | None = None
    family_version: int = 0
    flags: tuple[str, ...] = ()
    run: str = ""
    taken: str = ""
    shipped: bool = False


@dataclass(frozen=True)
class Finished:
    """A workload whose finals were held: with which versions of which families, and whether the vendor took part.

    `kernels` is how many the search was allowed to try, None where the record does not tell.
    """

    workload: str
    families: Mapping[str, int]
    vendor: bool
    run: str
    taken: str
    kernels: int | None = None


@dataclass(frozen=True)
class RunSummary:
    """A tuning run that ended by itself or was stopped."""

    run: str
    model: str
    started: str
    seconds: float
    cancelled: bool


def with_id(row: Row) -> Row:
    """The row with its id: the hash of its other columns."""
    content = json.dumps({k: v for k, v in row.items() if k != "id"}, sort_keys=True, allow_nan=False)
    return {"id": hashlib.sha256(content.encode()).hexdigest()[:32], **row}


def identity_row(identity: Identity) -> Row:
    gpu = asdict(identity.gpu)
    spec = json.dumps(gpu.pop("spec"), sort_keys=True)
    return with_id({**gpu, "nvcc": identity.nvcc, "cutlass": identity.cutlass, "spec": spec})


def matching_columns(identity: Identity) -> dict[str, Any]:
    """What another identity must have in common to share records: all but the rates and limits that only rank."""
    return {k: v for k, v in identity_row(identity).items() if k not in ("id", "spec")}


def identity_from(row: Row) -> Identity:
    gpu = {n: row[n] for n in ("name", "sm", "sm_count", "memory_mhz", "driver", "cuda")}
    return Identity(GpuIdentity(**gpu, spec=GpuSpec(**json.loads(row["spec"]))), row["nvcc"], row["cutlass"])


def candidate_row(candidate: Candidate) -> Row:
    data = json.dumps(candidate_to_dict(candidate), sort_keys=True)
    return with_id({"name": candidate.name, "family": candidate.kernel.family, "data": data})


def outcome_row(record: Record) -> tuple[str, Row]:
    """(table, row) of a record's outcome. Raises ValueError when a figure is not finite."""
    outcome = record.outcome
    common = {
        "gpu": record.identity.id,
        "workload": outcome.workload,
        "candidate": candidate_row(record.candidate)["id"] if record.candidate else "",
        "name": outcome.candidate,
        "family_version": record.family_version,
        "flags": json.dumps(record.flags),
        "run": record.run,
        "taken": record.taken,
    }
    if isinstance(outcome, Failure):
        log = outcome.log[:_LOG_CHARACTERS]
        return "failures", with_id({**common, "stage": str(outcome.stage), "reason": outcome.reason, "log": log})
    figures = {
        "source": outcome.source,
        "detail": outcome.detail,
        "phase": str(outcome.phase),
        "samples": json.dumps(outcome.samples_us, allow_nan=False),
        "relative_l2": float(outcome.relative_l2),
        "max_abs": float(outcome.max_abs),
        "state": json.dumps(asdict(outcome.state), sort_keys=True, allow_nan=False),
    }
    return "measurements", with_id({**common, **figures})


def outcome_from(row: Row) -> Outcome:
    """The outcome in a row of "measurements" or "failures"."""
    if "stage" in row:
        return Failure(row["workload"], row["name"], Stage(row["stage"]), row["reason"], row["log"])
    return Measurement(
        workload=row["workload"],
        candidate=row["name"],
        phase=Phase(row["phase"]),
        samples_us=tuple(float(s) for s in json.loads(row["samples"])),
        relative_l2=row["relative_l2"],
        max_abs=row["max_abs"],
        source=row["source"],
        detail=row["detail"],
        state=GpuState(**json.loads(row["state"])),
    )


def record_from(row: Row, gpu: Row, candidate: Row | None, shipped: bool) -> Record:
    """The record in a row, with the rows it refers to."""
    return Record(
        outcome=outcome_from(row),
        identity=identity_from(gpu),
        candidate=candidate_from_dict(json.loads(candidate["data"])) if candidate else None,
        family_version=row["family_version"],
        flags=tuple(json.loads(row["flags"])),
        run=row["run"],
        taken=row["taken"],
        shipped=shipped,
    )


def check_row(table: str, row: Any) -> Row:
    """A row that came from outside, proven whole: its columns, their types, its id and what its texts decode to.

    Raises:
        ValueError: it is not a row that this module wrote.
    """
    columns = TABLES[table]
    if not isinstance(row, dict) or set(row) != set(columns):
        raise ValueError(f"a row of {table} has other columns")
    for name, kind in columns.items():
        if type(row[name]) is not kind:
            raise ValueError(f"{name} in {table} is no {kind.__name__}")
    if with_id({k: v for k, v in row.items() if k != "id"})["id"] != row["id"]:
        raise ValueError(f"row {row['id']} of {table} was changed")
    try:
        _decode(table, row)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"row {row['id']} of {table} does not decode ({error})") from error
    return row


def _decode(table: str, row: Row) -> None:
    if table == "gpus":
        identity_from(row)
    elif table == "candidates":
        if candidate_from_dict(json.loads(row["data"])).name != row["name"]:
            raise ValueError(f"candidate {row['name']} is another one")
    elif table in ("measurements", "failures"):
        outcome = outcome_from(row)
        parse_workload(outcome.workload)
        if isinstance(outcome, Measurement) and not all(s > 0 for s in (*outcome.samples_us, outcome.us)):
            raise ValueError(f"measurement {row['id']} has a time that is not positive")
    elif table == "searches":
        parse_workload(row["workload"])
    elif table == "finished":
        parse_workload(row["workload"])
        dict(json.loads(row["families"]))
