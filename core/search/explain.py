"""Candidates in words: what a name means, what its parameters do, and why one was put before the others."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.search.words import LAUNCHES, MEANINGS
from templates import families as all_families
from templates.family import Candidate, Family
from templates.gpu import GpuSpec
from templates.workload import Workload


@dataclass(frozen=True)
class Explained:
    """A candidate with the rules' opinion. `params` are (name, value, meaning); `meaning` is "" where none is known."""

    candidate: Candidate
    us: float
    why: str
    params: tuple[tuple[str, str, str], ...]


def find_candidate(
    workload: Workload, gpu: GpuSpec, name: str, families: Mapping[str, Family] | None = None
) -> Candidate | None:
    """The candidate of that name, looked for in the spaces of the families; None if no family knows it any more."""
    kernel_name = name.partition("@")[0]
    for family_name, family in (all_families() if families is None else families).items():
        if not kernel_name.startswith(f"{family_name}_") or family.refuses(workload, gpu) is not None:
            continue
        for kernel in family.kernels(workload, gpu):
            if kernel.name == kernel_name:
                found = [Candidate(kernel, launch) for launch in family.launches(kernel, workload, gpu)]
                return next((c for c in found if c.name == name), None)
    return None


def explain(
    candidate: Candidate, workload: Workload, gpu: GpuSpec, families: Mapping[str, Family] | None = None
) -> Explained:
    """The candidate's parameters with their meanings and its rank's reason."""
    family = (all_families() if families is None else families)[candidate.kernel.family]
    score = family.score(candidate, workload, gpu)
    params = [(n, str(v), MEANINGS.get(n, "")) for n, v in candidate.kernel.params]
    launch = candidate.launch
    params += [
        (n, "on" if v is True else str(v), LAUNCHES[n])
        for n, v, usual in (
            ("raster", launch.raster, 0), ("swizzle", launch.swizzle, 1), ("splits", launch.splits, 1),
            ("pdl", launch.pdl, False), ("variant", launch.variant, 0),
        )
        if v != usual
    ]  # fmt: skip
    return Explained(candidate, score.us, score.why, tuple(params))


def source_of(candidate: Candidate, families: Mapping[str, Family] | None = None) -> str:
    """The CUDA source that is compiled for the candidate's kernel."""
    return (all_families() if families is None else families)[candidate.kernel.family].source(candidate.kernel)
