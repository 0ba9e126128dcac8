"""The tuning records: what was measured and what failed, for which GPU and versions, kept for good.

Two layers: the user's own database, which is written, and the records that are shipped with the program
(resources/records, format in its README), which are only read and marked as shipped.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from core.errors import RecordError
from core.measure.measurement import Measurement, Outcome, Phase
from core.paths import RESOURCES, cache_dir
from core.records.exchange import read_file
from core.records.layer import Layer
from core.records.rows import (
    TABLES,
    Finished,
    Identity,
    Record,
    Row,
    RunSummary,
    candidate_row,
    identity_from,
    identity_row,
    matching_columns,
    outcome_row,
    record_from,
    with_id,
)
from templates import families as all_families
from templates.family import Candidate, Family


def shipped_files() -> list[Path]:
    """The record files that come with the program. The folder in BOLT_SHIPPED stands in for it; empty means none."""
    folder = os.environ.get("BOLT_SHIPPED", str(RESOURCES / "records"))
    return sorted(Path(folder).glob("*.json.gz")) if folder else []


def default_path() -> Path:
    """The user's own database."""
    return cache_dir() / "records.sqlite"


def now() -> str:
    """The time as records keep it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Records:
    """See the module. Methods raise RecordError when the database can't be read or written.

    Args:
        path: the user's database; made when it is not there.
        shipped: files that are read beneath it; those of `shipped_files` if not given.
        families: template families by name: a record of another version of a family is kept but not trusted.
    """

    def __init__(
        self,
        path: Path | None = None,
        shipped: Sequence[Path] | None = None,
        families: Mapping[str, Family] | None = None,
        busy_s: float = 10.0,
    ) -> None:
        self.path = path or default_path()
        self._own = Layer(self.path, busy_s)
        self._shipped_files = shipped_files() if shipped is None else list(shipped)
        self._families = families
        self._origins_read: dict[str, Row] | None = None

    @cached_property
    def _shipped(self) -> Layer:
        layer = Layer(None)
        for file in self._shipped_files:
            layer.insert((table, row) for table, rows in read_file(file).items() for row in rows)
        return layer

    @cached_property
    def _versions(self) -> dict[str, int]:
        found = all_families() if self._families is None else self._families
        return {name: family.version for name, family in found.items()}

    # -- writing

    def add(
        self,
        outcome: Outcome,
        identity: Identity,
        candidate: Candidate | None = None,
        *,
        run: str = "",
        flags: Sequence[str] = (),
        taken: str = "",
    ) -> Record:
        """Keep an outcome; on return it outlives this process. `candidate` is None for a vendor's kernel."""
        (record,) = self.add_all([(outcome, candidate, flags)], identity, run=run, taken=taken)
        return record

    def add_all(
        self,
        outcomes: Iterable[tuple[Outcome, Candidate | None, Sequence[str]]],
        identity: Identity,
        *,
        run: str = "",
        taken: str = "",
    ) -> list[Record]:
        """Keep (outcome, candidate, compiler flags) that belong together, such as a workload's finals: all or none."""
        made, rows = [], [("gpus", identity_row(identity))]
        for outcome, candidate, flags in outcomes:
            version = self._versions.get(candidate.kernel.family, 0) if candidate else 0
            record = Record(outcome, identity, candidate, version, tuple(flags), run, taken or now())
            made.append(record)
            if candidate is not None:
                rows.append(("candidates", candidate_row(candidate)))
            rows.append(outcome_row(record))
        self._own.insert(rows)
        return made

    def finish(
        self,
        workload: str,
        identity: Identity,
        families: Mapping[str, int],
        vendor: bool,
        run: str = "",
        kernels: int | None = None,
    ) -> None:
        """Note that the workload's finals were held, with these versions of the families that serve it.

        `kernels` is how many the search could try: a later one that may try more goes on from there.
        """
        row = {
            "gpu": identity.id, "workload": workload, "families": json.dumps(dict(families), sort_keys=True),
            "vendor": int(vendor), "run": run, "taken": now(),
        }  # fmt: skip
        rows = [("gpus", identity_row(identity)), ("finished", with_id(row))]
        if kernels is not None:
            search = {"gpu": identity.id, "workload": workload, "run": run, "kernels": kernels}
            rows.append(("searches", with_id(search)))
        self._own.insert(rows)

    def add_run(self, summary: RunSummary, identity: Identity) -> None:
        """Keep what became of a run."""
        row = {
            "run": summary.run, "gpu": identity.id, "model": summary.model, "started": summary.started,
            "seconds": float(summary.seconds), "cancelled": int(summary.cancelled),
        }  # fmt: skip
        self._own.insert([("gpus", identity_row(identity)), ("runs", with_id(row))])

    # -- reading

    def best(self, workload: str, gpu: Identity | str, vendor: bool = False) -> Record | None:
        """The winner of the newest finals of the workload: lowest median of the trusted records.

        Figures of one run only are compared, since clocks differ between runs. The user's own records go before the
        shipped ones.

        Args:
            workload: a workload's key.
            gpu: an identity (all of it must be equal), or a GPU's name as the driver gives it.
            vendor: the fastest vendor kernel instead of the fastest template candidate.
        """
        for layer, shipped in ((self._own, False), (self._shipped, True)):
            finals = [
                r
                for r in self._records(layer, shipped, "measurements", gpu, workload=workload, phase=str(Phase.FINAL))
                if self._trusted(r)
            ]
            newest = max((r.taken, r.run) for r in finals)[1] if finals else ""
            held = [r for r in finals if r.run == newest and (r.candidate is None) == vendor]
            if held:
                return min(held, key=_median)
        return None

    def peer(self, best: Record) -> Record | None:
        """The fastest vendor kernel of the finals that `best` was held in; None if no vendor took part."""
        layer = self._shipped if best.shipped else self._own
        where = {"workload": best.outcome.workload, "phase": str(Phase.FINAL), "run": best.run, "candidate": ""}
        return min(
            self._records(layer, best.shipped, "measurements", best.identity, **where), key=_median, default=None
        )

    def finals(self, workload: str) -> list[Record]:
        """Trusted final measurements of template kernels for the workload, of every GPU and of both layers."""
        found = [
            record
            for layer, shipped in ((self._shipped, True), (self._own, False))
            for record in self._records(layer, shipped, "measurements", None, workload=workload, phase=str(Phase.FINAL))
        ]
        return [r for r in found if r.candidate is not None and self._trusted(r)]

    def known(self, workload: str, identity: Identity) -> dict[str, Record]:
        """The newest trusted outcome of every candidate of the workload on exactly this identity, by candidate name.

        Vendor kernels are left out: they are measured anew in all finals.
        """
        found: dict[str, Record] = {}
        for record in self.all(workload, identity):
            if record.candidate is not None and not record.shipped and self._trusted(record):
                found[record.outcome.candidate] = record
        return found

    def finished(self, workload: str, identity: Identity) -> Finished | None:
        """The newest finals of the workload on exactly this identity."""
        rows = self._own.rows("finished", workload=workload, gpu=[g["id"] for g in _gpus(self._own, identity)])
        if not rows:
            return None
        r = rows[-1]
        searches = self._own.rows("searches", workload=workload, gpu=r["gpu"], run=r["run"])
        kernels = max((s["kernels"] for s in searches), default=None)
        return Finished(r["workload"], json.loads(r["families"]), bool(r["vendor"]), r["run"], r["taken"], kernels)

    def all(self, workload: str | None = None, gpu: Identity | str | None = None) -> list[Record]:
        """Measurements and failures of both layers, oldest first."""
        where = {} if workload is None else {"workload": workload}
        found = [
            record
            for layer, shipped in ((self._shipped, True), (self._own, False))
            for table in ("measurements", "failures")
            for record in self._records(layer, shipped, table, gpu, **where)
        ]
        return sorted(found, key=lambda r: r.taken)

    def count(self) -> int:
        """How many `all` would return, without reading them."""
        return sum(layer.count(t) for layer in (self._shipped, self._own) for t in ("measurements", "failures"))

    def failures(self, workload: str | None = None, gpu: Identity | str | None = None) -> list[Record]:
        """Failures of the user's own layer, oldest first."""
        where = {} if workload is None else {"workload": workload}
        return self._records(self._own, False, "failures", gpu, **where)

    def identities(self) -> list[tuple[Identity, bool]]:
        """Every identity that has records, and whether it is a shipped one."""
        layers = ((self._own, False), (self._shipped, True))
        return [(identity_from(row), shipped) for layer, shipped in layers for row in layer.rows("gpus")]

    def runs(self) -> list[RunSummary]:
        """Runs of the user's own layer."""
        found = self._own.rows("runs")
        runs = [RunSummary(r["run"], r["model"], r["started"], r["seconds"], bool(r["cancelled"])) for r in found]
        return sorted(runs, key=lambda r: r.started)

    def _records(
        self, layer: Layer, shipped: bool, table: str, gpu: Identity | str | None, **where: str
    ) -> list[Record]:
        by_id = {row["id"]: row for row in _gpus(layer, gpu)}
        rows = layer.rows(table, gpu=list(by_id), **where)
        wanted = sorted({row["candidate"] for row in rows} - {""})
        candidates = {c["id"]: c for part in _chunks(wanted) for c in layer.rows("candidates", id=part)}
        return [record_from(row, by_id[row["gpu"]], candidates.get(row["candidate"]), shipped) for row in rows]

    def template_version(self, family: str) -> int | None:
        """Of a family as it is today; None if it is gone."""
        return self._versions.get(family)

    def _trusted(self, record: Record) -> bool:
        if record.candidate is None:
            return True
        return self._versions.get(record.candidate.kernel.family) == record.family_version

    # -- exchange

    def dump(self, gpu: str | None = None, finals_only: bool = False, shipped: bool = False) -> dict[str, list[Row]]:
        """Rows by table, as exchange.write_file takes them; of one GPU name, and without screening, if wanted."""
        layer = self._shipped if shipped else self._own
        gpus = _gpus(layer, gpu)
        tables = {"gpus": gpus}
        for table in ("measurements", "failures", "finished", "searches", "runs"):
            tables[table] = layer.rows(table, gpu=[g["id"] for g in gpus])
        if finals_only:
            tables["measurements"] = [r for r in tables["measurements"] if r["phase"] == Phase.FINAL]
            tables["failures"] = []
        used = {r["candidate"] for t in ("measurements", "failures") for r in tables[t]}
        tables["candidates"] = [c for c in layer.rows("candidates") if c["id"] in used]
        return {table: tables[table] for table in TABLES}

    def load(self, tables: Mapping[str, Iterable[Row]], source: str = "") -> int:
        """Add the rows that are not here yet; returns how many there were. Rows are checked by exchange.read_file.

        `source`: the file they are from; runs that were not here before are noted as coming from it.
        """
        rows = [(table, row) for table in TABLES for row in tables.get(table, ())]
        here = {run for table in ("measurements", "failures") for run in self._own.values(table, "run")}
        runs = {row["run"] for table, row in rows if table in ("measurements", "failures")} - here - {""}
        new = self._own.insert(rows)
        if source:
            noted = [with_id({"run": run, "source": source, "taken": now()}) for run in sorted(runs)]
            self._own.insert(("origins", row) for row in noted)
            self._origins_read = None
        return new

    def origin(self, record: Record) -> str:
        """Where the record comes from: "shipped", "measured here" or "imported from FILE on DATE"."""
        if record.shipped:
            return "shipped"
        row = self._origins.get(record.run)
        return f"imported from {row['source']} on {row['taken'][:10]}" if row else "measured here"

    @property
    def _origins(self) -> dict[str, Row]:
        """By run. Read again after an import, which is what changes them."""
        if self._origins_read is None:
            self._origins_read = {row["run"]: row for row in reversed(self._own.rows("origins"))}
        return self._origins_read

    def prune(self, before: str = "", outdated: bool = False, screening: bool = False) -> int:
        """Remove measurements and failures of the user's own layer; returns how many.

        Args:
            before: those taken before this time (ISO 8601).
            outdated: those of families that are gone or have another version now.
            screening: those of the screening phase.
        """
        removed = 0
        for table in ("measurements", "failures"):
            rows = self._own.rows(table)
            families = {c["id"]: c["family"] for c in self._own.rows("candidates")}
            ids = [
                r["id"]
                for r in rows
                if (before and r["taken"] < before)
                or (screening and r.get("phase") == Phase.SCREEN)
                or (outdated and r["candidate"] and self._versions.get(families[r["candidate"]]) != r["family_version"])
            ]
            self._own.delete(table, ids)
            removed += len(ids)
        stale = [r for r in self._own.rows("finished") if before and r["taken"] < before]
        runs = {r["run"] for r in stale}
        self._own.delete("finished", [r["id"] for r in stale])
        self._own.delete("searches", [r["id"] for r in self._own.rows("searches") if r["run"] in runs])
        self._own.vacuum()
        return removed

    def close(self) -> None:
        self._own.close()


def _gpus(layer: Layer, gpu: Identity | str | None) -> list[Row]:
    """Rows of a GPU: of one identity, of all with a name, or of all."""
    if isinstance(gpu, Identity):
        return layer.rows("gpus", **matching_columns(gpu))
    return layer.rows("gpus") if gpu is None else layer.rows("gpus", name=gpu)


def _median(record: Record) -> float:
    if not isinstance(record.outcome, Measurement):
        raise RecordError(f"{record.outcome.candidate} has no time, it failed")
    return record.outcome.us


def _chunks(items: Sequence[str], size: int = 500) -> list[list[str]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]
