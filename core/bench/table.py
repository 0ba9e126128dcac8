"""A suite's result: its JSON form (cli.md), its text form, and where results are kept."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import BoltError
from core.files import write_atomically
from core.paths import RESOURCES, cache_dir

RECORDED = RESOURCES / "bench"
_UNITS = {"tuning-time": ("s", 1e6)}  # of the text form where microseconds say nothing; and how many they are


@dataclass(frozen=True)
class Form:
    """One way to compute a row's workload: microseconds, error, and what ran."""

    us: float
    relative_l2: float
    detail: str


@dataclass(frozen=True)
class Row:
    """Times in microseconds; `peer_us` is None where the peer is absent. `ratio` = peer / ours, above 1 is faster.

    `forms`: other ways to compute the same, by name, that the suite sets beside the best one (core.bench.pairs).
    `group`: rows of one group have a mean of their own ("aligned", "odd").
    """

    name: str
    ours_us: float | None
    peer: str
    peer_us: float | None
    relative_l2: float | None
    detail: str = ""
    forms: dict[str, Form] = field(default_factory=dict)
    group: str = ""

    @property
    def ratio(self) -> float | None:
        return self.peer_us / self.ours_us if self.ours_us and self.peer_us else None


def result(suite: str, gpu: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The JSON object of one measured run."""
    groups = dict.fromkeys(r.group for r in rows if r.group)
    return {
        "suite": suite,
        "gpu": gpu,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "measured": True,
        "rows": [{**asdict(r), "ratio": r.ratio} for r in rows],
        **_summary(rows),
        "groups": {group: _summary([r for r in rows if r.group == group]) for group in groups},
    }


def _summary(rows: Sequence[Row]) -> dict[str, float | None]:
    ratios = [r.ratio for r in rows if r.ratio is not None]
    return {"geomean": _mean(ratios) if ratios else None, "minimum": min(ratios) if ratios else None}


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def store(data: dict[str, Any], folder: Path | None = None) -> Path:
    """Write the result as <suite>-<gpu>-<date>.json and return its path."""
    folder = folder or cache_dir() / "bench"
    gpu = "-".join(str(data["gpu"]).lower().split())
    path = folder / f"{data['suite']}-{gpu}-{data['date']}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(data, indent=1) + "\n")
    except OSError as error:
        raise BoltError(f"cannot write {path}: {error.strerror}", "free some space or give another --store") from None
    return path


def recorded(suite: str, folder: Path = RECORDED) -> dict[str, Any]:
    """The newest committed result of the suite, marked as not measured here. Raises BoltError if there is none."""
    found = sorted(folder.glob(f"{suite}-*.json"), key=lambda p: p.name[-15:])
    if not found:
        raise BoltError(f"no result of the suite {suite} has been recorded", "run it on a GPU, without --recorded")
    return {**json.loads(found[-1].read_text(encoding="utf-8")), "measured": False}


def text(data: dict[str, Any]) -> str:
    """The table for a terminal."""

    def figure(value: float | None, form: str = ".2f") -> str:
        return "-" if value is None else format(value, form)

    width = max([len(str(r["name"])) for r in data["rows"]] + [8])
    unit, microseconds = _UNITS.get(data["suite"], ("us", 1.0))

    def times(value: float | None) -> str:
        return figure(None if value is None else value / microseconds)

    lines = [f"{data['suite']} on {data['gpu']}, {data['date']}" + ("" if data["measured"] else " (recorded)")]
    lines.append(f"{'':{width}} {f'ours {unit}':>10} {f'peer {unit}':>10} {'ratio':>6} {'error':>8}  peer; ours")
    for row in data["rows"]:
        lines.append(
            f"{row['name']:{width}} {times(row['ours_us']):>10} {times(row['peer_us']):>10} "
            f"{figure(row['ratio']):>6} {figure(row['relative_l2'], '.1e'):>8}  {row['peer']}; {row['detail']}"
        )
    lines += _forms(data["rows"], width)
    for group, of in {**data.get("groups", {}), "": data}.items():
        if of["geomean"] is None:  # nothing was compared
            continue
        name = f"{group}: " if group else ""
        lines.append(f"{name}geometric mean {figure(of['geomean'])}, minimum {figure(of['minimum'])}")
    if data.get("regret"):
        regret = data["regret"]
        lines.append(f"regret of the ranked search: median {regret['median']:.1%}, worst {regret['worst']:.1%}")
    return "\n".join(lines)


def _forms(rows: Sequence[dict[str, Any]], width: int) -> list[str]:
    """The table of forms, each with its error, and how much the best form gains over the first one."""
    names = list(dict.fromkeys(name for row in rows for name in row.get("forms", {})))
    if not names:
        return []
    lines = [f"{'us (relative L2)':{width}} " + " ".join(f"{name:>18}" for name in ("vendor", *names, "gain"))]
    gains = []
    for row in rows:
        forms = row["forms"]
        cells = [f"{forms[n]['us']:.2f} ({forms[n]['relative_l2']:.0e})" if n in forms else "-" for n in names]
        gain = forms[names[0]]["us"] / row["ours_us"] if names[0] in forms and row["ours_us"] else None
        gains += [gain] if gain else []
        vendor = "-" if row["peer_us"] is None else f"{row['peer_us']:.2f}"
        cells = [vendor, *cells, "-" if gain is None else f"{gain:.2f}"]
        lines.append(f"{row['name']:{width}} " + " ".join(f"{cell:>18}" for cell in cells))
    if gains:
        lines.append(f"gain over {names[0]}: geometric mean {_mean(gains):.2f}, minimum {min(gains):.2f}")
    return lines
