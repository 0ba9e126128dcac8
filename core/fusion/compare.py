"""Plan A against plan B, on the time of their regions: where they differ, and what that costs or saves.

Regions that both plans have cancel out, measured or not. A difference has a gain only where every region on both sides
was measured; estimates stand apart and are never added to what was measured.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.fusion.plan import FusionPlan, Region


@dataclass(frozen=True)
class Figure:
    """The time of a workload in microseconds. `source` says where it comes from, e.g. "measured" or "replayed"."""

    us: float
    source: str
    measured: bool  # False: an estimate of the ranking rules


@dataclass(frozen=True)
class Side:
    """Regions of one plan, and what is known of their time. `unknown`: those with no figure, or not tuned at all."""

    regions: tuple[Region, ...]
    measured_us: float
    estimated_us: float
    estimated: tuple[Region, ...]
    unknown: tuple[Region, ...]

    @property
    def whole(self) -> bool:
        """Whether every region was measured."""
        return not self.estimated and not self.unknown


@dataclass(frozen=True)
class Difference:
    """The same nodes, cut into regions differently, or told another residence."""

    a: Side
    b: Side

    @property
    def gain_us(self) -> float | None:
        """What B saves over A; None unless all of both sides was measured."""
        return self.a.measured_us - self.b.measured_us if self.a.whole and self.b.whole else None


@dataclass(frozen=True)
class Comparison:
    """`a` and `b` are the whole plans, `differences` in A's order, `same` the number of regions both have."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    same: int

    @property
    def gain_us(self) -> float | None:
        """What plan B saves; None if a difference has no gain, so that nobody reads half a sum as the whole."""
        gains = [d.gain_us for d in self.differences]
        return None if None in gains else sum(g for g in gains if g is not None)


def compare(a: FusionPlan, b: FusionPlan, figures: Mapping[str, Figure]) -> Comparison:
    """`figures` by workload key, of one run: clocks differ between runs. The plans must be of the same graph."""
    differences = []
    for left, right in _blocks(a, b):
        if [_what(r) for r in left] != [_what(r) for r in right]:
            differences.append(Difference(side(left, figures), side(right, figures)))
    same = len(a.regions) - sum(len(d.a.regions) for d in differences)
    return Comparison(side(a.regions, figures), side(b.regions, figures), tuple(differences), same)


def side(regions: Iterable[Region], figures: Mapping[str, Figure]) -> Side:
    regions = tuple(regions)
    known = [(r, figures.get(r.workload.key) if r.workload else None) for r in regions]
    return Side(
        regions,
        sum(f.us for _, f in known if f is not None and f.measured),
        sum(f.us for _, f in known if f is not None and not f.measured),
        tuple(r for r, f in known if f is not None and not f.measured),
        tuple(r for r, f in known if f is None),
    )


def _what(region: Region) -> tuple[tuple[str, ...], str]:
    return region.nodes, region.workload.key if region.workload else ""


def _blocks(a: FusionPlan, b: FusionPlan) -> list[tuple[list[Region], list[Region]]]:
    """The least groups of regions that cover the same nodes in both plans, in A's order."""
    block_of: dict[str, int] = {}  # by node
    members: list[list[str]] = []
    for region in (*a.regions, *b.regions):
        joined = sorted({block_of[n] for n in region.nodes if n in block_of})
        at = joined[0] if joined else len(members)
        if not joined:
            members.append([])
        for other in joined[1:]:
            members[at] += members[other]
            block_of.update(dict.fromkeys(members[other], at))
            members[other] = []
        new = [n for n in region.nodes if n not in block_of]
        members[at] += new
        block_of.update(dict.fromkeys(new, at))
    sides: dict[int, tuple[list[Region], list[Region]]] = {}
    for place, made in enumerate((a, b)):
        for region in made.regions:
            sides.setdefault(block_of[region.nodes[0]], ([], []))[place].append(region)
    return list(sides.values())
