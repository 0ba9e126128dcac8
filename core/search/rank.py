"""From a workload and a GPU to tens of ranked candidates, by the families' written-down rules (paper section 3.2.2)."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from templates import families as all_families
from templates.family import Candidate, Family, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.workload import Workload

DEFAULT_LIMIT = 16
# An estimate is this coarse: of two candidates this near, one that needs no compiling is the better try.
NEAR = 0.9
_TILE_SHARE = 6  # of the candidates, at most one in so many (and never fewer than two) may share a tile
# Estimates of one family against another are coarser still: every family whose best estimate is within this factor of
# the best of all gets at least one in so many of the places, the others one place each, unless they are further off
# than families can be confused (resources/records: of those measured on one workload the winner was never estimated at
# more than 1.4 times the best, twice that for families not yet measured). The second family may be further off, for
# workloads on which the first fails.
_RIVAL = 1.5
_NO_CHANCE, _SECOND_NO_CHANCE = 3.0, 10.0
_FAMILY_SHARE = 4
# Within a family sizes have neighbours whose estimates err alike; what is named (a schedule, an iterator) has none.
# Each combination of names whose best estimate is so near to the family's best gets at least one in so many places.
_NEAR_STYLE = 1.1
_STYLE_SHARE = 8
# Estimates of large and of small tiles err apart: each size (to the next power of two) whose best estimate is so near
# to the family's best gets one in so many places.
_NEAR_SIZE = 1.15
_SIZE_SHARE = 16
_HOPEFUL = 4
_MOST_SEEDS = 4  # as many as go into the finals


@dataclass(frozen=True)
class Ranked:
    """A candidate with its rules' opinion."""

    candidate: Candidate
    score: Score

    @property
    def kernel(self) -> Kernel:
        return self.candidate.kernel


@dataclass(frozen=True)
class Ranking:
    """Candidates to try, most promising first, each kernel once with its most promising launch.

    `legal` counts kernels that could run the workload, `skipped` those of them that were not taken. `illegal` and
    `refused` name kernels and whole families that can't, with the reason.
    """

    candidates: tuple[Ranked, ...]
    legal: int
    skipped: int
    illegal: tuple[tuple[str, str], ...]
    refused: tuple[tuple[str, str], ...]


def rank(
    workload: Workload,
    gpu: GpuSpec,
    families: Mapping[str, Family] | None = None,
    limit: int = DEFAULT_LIMIT,
    built: Container[Kernel] = frozenset(),
    seeds: Sequence[tuple[str, str]] = (),
) -> Ranking:
    """Asks every family and takes the `limit` most promising kernels.

    The best kernel of each family that stands a chance is among them (limit permitting), and several of a family or a
    style (schedule, iterator) that the estimates place near the best one. No tile takes more than its share, because
    clusters and stages of one tile are alike. A kernel that is `built` goes before an equal one that is not.

    `seeds` are kernels by (family, stem) that did well elsewhere (core.records.transfer), the best first: up to four of
    those that are legal here, and never more than half of the candidates, have a place for certain.
    """
    legal: list[Ranked] = []
    illegal, refused = [], []
    for name, family in (all_families() if families is None else families).items():
        if gpu.sm < family.min_sm or gpu.sm > family.max_sm:
            refused.append((name, f"is for compute capability {family.min_sm / 10} to {family.max_sm / 10}"))
            continue
        reason = family.refuses(workload, gpu)
        if reason is not None:
            refused.append((name, reason))
            continue
        for kernel in family.kernels(workload, gpu):
            found = _consider(family, kernel, workload, gpu)
            if isinstance(found, Ranked):
                legal.append(found)
            else:
                illegal.append((kernel.name, found))
    chosen = _choose(legal, limit, built, seeds)
    return Ranking(tuple(chosen), len(legal), len(legal) - len(chosen), tuple(illegal), tuple(refused))


def _consider(family: Family, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> Ranked | str:
    reason = family.illegal(kernel, workload, gpu)
    if reason is not None:
        return reason
    launches = family.launches(kernel, workload, gpu)
    if not launches:
        return "there is no way to launch it for this shape"
    candidate = Candidate(kernel, launches[0])
    score = family.score(candidate, workload, gpu)
    return Ranked(candidate, score) if isfinite(score.us) else f"its estimate is {score.us}"


def _choose(
    legal: list[Ranked], limit: int, built: Container[Kernel], seeds: Sequence[tuple[str, str]]
) -> list[Ranked]:
    keyed = sorted(legal, key=lambda r: (r.score.us, r.kernel.name))
    hopeful = keyed[: _HOPEFUL * limit]  # asking whether a kernel is built renders its source: not for every one
    ready = {r for r in hopeful if r.kernel in built}
    near = sorted(keyed, key=lambda r: r.score.us * (NEAR if r in ready else 1.0))
    share = max(2, ceil(limit / _TILE_SHARE))
    chosen: list[Ranked] = []
    taken: set[Ranked] = set()
    tiles: Counter[tuple[str, str]] = Counter()

    def take(ranked: Ranked) -> bool:
        if len(chosen) >= limit or ranked in taken or tiles[tile_of(ranked.kernel)] >= share:
            return False
        chosen.append(ranked)
        taken.add(ranked)
        tiles[tile_of(ranked.kernel)] += 1
        return True

    known = {(r.kernel.family, r.kernel.stem): r for r in reversed(near)}
    for ranked in [known[s] for s in seeds if s in known][: min(_MOST_SEEDS, -(-limit // 2))]:
        take(ranked)
    for places, group in _places(near, limit):
        got = sum(r in taken for r in group)
        for ranked in group:
            got += got < places and take(ranked)
    for ranked in near:
        take(ranked)
    order = {ranked: i for i, ranked in enumerate(near)}
    return sorted(chosen, key=order.__getitem__)


def _places(near: list[Ranked], limit: int) -> list[tuple[int, list[Ranked]]]:
    """How many places each family and style has for certain, and its kernels; one for each family comes first."""
    best = near[0].score.us if near else 0.0
    grouped = _grouped(near, lambda kernel: kernel.family)
    reach = (_NO_CHANCE, _SECOND_NO_CHANCE)
    families = [g for i, g in enumerate(grouped) if g[0].score.us <= reach[i == 1] * best]
    rivals = [g for g in families if g[0].score.us <= _RIVAL * best]
    styles = [s for g in rivals for s in _grouped(g, _style_of) if s[0].score.us <= _NEAR_STYLE * g[0].score.us]
    sizes = [s for g in rivals for s in _grouped(g, _size_of) if s[0].score.us <= _NEAR_SIZE * g[0].score.us]
    return [
        *((1, g) for g in families),
        *((limit // _SIZE_SHARE, s) for s in sizes),
        *((limit // _STYLE_SHARE, s) for s in styles),
        *((limit // _FAMILY_SHARE, g) for g in rivals),
    ]


def _grouped(ranked: list[Ranked], key: Callable[[Kernel], Hashable]) -> list[list[Ranked]]:
    groups: dict[Hashable, list[Ranked]] = {}
    for one in ranked:
        groups.setdefault(key(one.kernel), []).append(one)
    return list(groups.values())


def _style_of(kernel: Kernel) -> tuple[str, ...]:
    """The values of the kernel's named, not sized, parameters."""
    return tuple(value for _, value in kernel.params if isinstance(value, str))


def _size_of(kernel: Kernel) -> int:
    """The area of the kernel's tile as a power of two; 0 where its stem does not begin with a tile."""
    m, _, rest = tile_of(kernel)[1].partition("x")
    n = rest.partition("x")[0]
    return (int(m) * int(n)).bit_length() if m.isdecimal() and n.isdecimal() else 0


def tile_of(kernel: Kernel) -> tuple[str, str]:
    """The family and tile of a kernel: stems begin with the tile ("128x256x64_2x1_pingpong")."""
    return kernel.family, kernel.stem.partition("_")[0]


def other_launches(
    candidate: Candidate,
    workload: Workload,
    gpu: GpuSpec,
    families: Mapping[str, Family] | None = None,
    tried: Collection[str] = (),
    limit: int = 8,
) -> list[Candidate]:
    """The kernel's further launches that are worth trying once the kernel has proven good; none needs compiling."""
    family = (all_families() if families is None else families)[candidate.kernel.family]
    launches: list[Launch] = family.launches(candidate.kernel, workload, gpu)
    found = [Candidate(candidate.kernel, launch) for launch in launches]
    return [c for c in found if c != candidate and c.name not in tried][:limit]
