"""What older records say about which kernels to try first: those of other GPUs, and of the same work with another
activation.

A kernel that won there is no measurement here: it only gets a place among the candidates (core.search.rank, `seeds`).
"""

from collections.abc import Iterator
from dataclasses import replace

from core.measure.measurement import Measurement
from core.records.rows import Record
from core.records.store import Records
from templates.epilogue import ACTIVATIONS, Epilogue, EpilogueOp
from templates.workload import ConvWorkload, GemmWorkload, Workload

Seed = tuple[str, str]  # family and stem of a kernel: its parameters, whatever its epilogue and alignment

_EACH = 3  # kernels of one set of finals; what came in later was slower and is like them


def promising(records: Records, workload: Workload, gpu: str) -> tuple[Seed, ...]:
    """Kernels that did well, the nearest evidence first.

    The order: the workload itself on this GPU (by the driver's name), on others, then the same work with another
    activation on this GPU. Only records of template versions that are there today count. Raises RecordError.
    """
    own = records.finals(workload.key)
    found = [r for r in own if r.identity.gpu.name == gpu]
    sets = [found, *(by for by in _by_gpu(own) if by[0].identity.gpu.name != gpu)]
    for other in _alike(workload):
        sets.append([r for r in records.finals(other.key) if r.identity.gpu.name == gpu])
    seeds = [s for records_of_one in sets for s in _best(records_of_one)]
    return tuple(dict.fromkeys(seeds))


def _by_gpu(found: list[Record]) -> list[list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in found:
        groups.setdefault(record.identity.gpu.name, []).append(record)
    return list(groups.values())


def _best(found: list[Record]) -> list[Seed]:
    """The fastest kernels of the newest run among these."""
    if not found:
        return []
    newest = max(found, key=lambda r: (r.taken, r.run)).run
    held = [r for r in found if r.run == newest]
    kernels = [r.candidate.kernel for r in sorted(held, key=_us) if r.candidate is not None]
    return list(dict.fromkeys((k.family, k.stem) for k in kernels))[:_EACH]


def _alike(workload: Workload) -> Iterator[Workload]:
    """The workload with another activation where it has one, and with none."""
    if not isinstance(workload, GemmWorkload | ConvWorkload):
        return
    ops = workload.epilogue.ops
    at = next((i for i, o in enumerate(ops) if o.op in ACTIVATIONS), None)
    if at is None:
        return
    plain = [(EpilogueOp(name),) for name, count in ACTIVATIONS.items() if not count and name != ops[at].op]
    for instead in [*plain, ()]:
        yield replace(workload, epilogue=Epilogue((*ops[:at], *instead, *ops[at + 1 :]), workload.epilogue.output))


def _us(record: Record) -> float:
    assert isinstance(record.outcome, Measurement)  # finals are
    return record.outcome.us
