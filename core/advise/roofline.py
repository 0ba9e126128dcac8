"""Layers far below the roofline, each with the reason that weighs most."""

from collections.abc import Iterator

from core.advise.advice import Advice, Kind, Price, Term, Way
from core.advise.subject import Subject
from core.fusion.operators import ANCHORS
from core.fusion.plan import Region
from core.fusion.values import counted
from core.gains import Timed
from core.records.rows import Record
from core.roofline import Point, point, ridge
from core.search.waves import Waves, waves_of
from templates import families
from templates.attention import AttentionWorkload
from templates.workload import Chain, ConvWorkload, GemmWorkload, Workload

BELOW = 0.6  # of the roof: what is nearer has little left to gain
_LAUNCH_US = 4.0  # of so short a kernel starting, filling and emptying the SMs is the larger part
_TAIL = 0.15  # of the time the last wave leaves SMs idle


def advise_roofline(subject: Subject) -> list[Advice]:
    """A piece of advice for each distinct workload with a record below the roof, and one for all without a record."""
    found, unknown = [], []
    for workload, regions in subject.groups():
        record = subject.best(workload.key)
        timed = subject.times(workload.key)
        if record is None or timed is None:
            unknown.append((workload, regions))
            continue
        at = point(workload, timed.ours, subject.gpu)
        if at.share < BELOW:
            found.append(_below(subject, workload, regions, record, at, timed))
    return [*found, _unmeasured(unknown)] if unknown else found


def _unmeasured(unknown: list[tuple[Workload, list[Region]]]) -> Advice:
    regions = [r for _, group in unknown for r in group]
    terms = tuple(Term(len(group), (workload,), ()) for workload, group in unknown)
    price = Price(None, None, tuple(w.key for w, _ in unknown))
    return Advice(
        id="roofline-unmeasured",
        kind=Kind.ROOFLINE,
        what=f"how near {counted(len(regions), 'region')} of {counted(len(unknown), 'workload')} come to the roofline",
        why="no record tells",
        regions=tuple(r.id for r in regions),
        nodes=tuple(n for r in regions for n in r.nodes),
        ways=(Way("up to the roof", terms, price),),
        unchanged="nothing is known yet",
    )


def _below(
    subject: Subject, workload: Workload, regions: list[Region], record: Record, at: Point, timed: Timed
) -> Advice:
    us = timed.ours
    reasons = list(_reasons(subject, workload, regions[0], record, at, us))
    if timed.best < us:
        reasons.insert(0, f"the vendor's kernel is faster: {timed.best:.2f} us against {us:.2f}")
    roof_us = us * at.share
    price = Price(len(regions) * us, None, (), 1, len(regions) * (us - roof_us))
    what = f"{_place(regions)}: {at.share:.0%} of the {'memory' if at.memory_bound else 'compute'} roof"
    why = "; ".join(reasons) or "no rule explains it: the kernel itself falls short"
    facts = [("reached", f"{at.tflops:.3g} of {at.roof_tflops:.3g} TFLOP/s"), ("kernel", record.outcome.candidate)]
    if record.candidate is not None and record.candidate.kernel.family in families():
        family = families()[record.candidate.kernel.family]
        facts.append(("its rules say", family.score(record.candidate, workload, subject.gpu).why))
    return _advice(workload, regions, price, what, why, tuple(facts))


def _place(regions: list[Region]) -> str:
    return f"{counted(len(regions), 'region')} like {regions[0].id} ({regions[0].nodes[0]})"


def _advice(
    workload: Workload,
    regions: list[Region],
    price: Price,
    what: str,
    why: str,
    facts: tuple[tuple[str, str], ...] = (),
) -> Advice:
    return Advice(
        id=f"roofline-{regions[0].id}",
        kind=Kind.ROOFLINE,
        what=what,
        why=why,
        regions=tuple(r.id for r in regions),
        nodes=tuple(n for r in regions for n in r.nodes),
        ways=(Way("up to the roof", (Term(len(regions), (workload,), ()),), price),),
        unchanged="it is what the kernel does, not what the model says; shape and batch advice change what it is given",
        facts=facts,
    )


def _reasons(
    subject: Subject, workload: Workload, region: Region, record: Record, at: Point, us: float
) -> Iterator[str]:
    """In words, what weighs most first."""
    if us < _LAUNCH_US:
        yield f"launch bound: {us:.2f} us, little more than starting a kernel takes"
    waves = waves_of(workload, record.candidate, subject.gpu) if record.candidate is not None else None
    if waves is not None:
        yield from _wave_reasons(waves, subject.gpu.sm_count)
    if at.memory_bound:
        yield f"memory bound: {at.intensity:.0f} FLOP a byte, the ridge is at {ridge(subject.gpu):.0f}"
    short = unaligned(workload)
    if short:
        yield f"unaligned: {' and '.join(f'{n} = {v}' for n, v in short)} is no multiple of 8, so accesses are narrow"
    apart = (r for r in subject.plan.refusals if r.anchor == region.nodes[0])
    refused = next((r for r in apart if subject.graph.node(r.node).op not in ANCHORS), None)
    if refused is not None:
        yield f"unfused: {refused.node} did not join it, because {refused.reason}"


def _wave_reasons(waves: Waves, sms: int) -> Iterator[str]:
    if waves.tiles < sms:
        yield f"{waves.tiles} tiles for {sms} SMs: {sms - waves.tiles} SMs have nothing to do"
    elif waves.idle > _TAIL:
        yield f"wave tail: {waves.tiles} tiles on {sms} SMs are {waves.count:.2f} waves, {waves.idle:.0%} of them idle"
    if waves.waste > _TAIL:
        yield f"{waves.waste:.0%} of the tiles' area lies outside the result"


def unaligned(workload: Workload) -> list[tuple[str, int]]:
    """(name, size) of extents that keep kernels from 16-byte accesses of 2-byte elements."""
    if isinstance(workload, AttentionWorkload):
        sizes = {"the width of a head": workload.head_dim}
    elif isinstance(workload, Chain):
        _, *later = workload.parts
        sizes = {f"N{i}": part.k for i, part in enumerate(later)} | {f"N{len(later)}": later[-1].n}
    elif isinstance(workload, GemmWorkload):
        sizes = {"N": workload.n, "K": workload.k}
    else:
        assert isinstance(workload, ConvWorkload)
        sizes = {"C": workload.c, "K": workload.k} if workload.groups == 1 else {}
    return [(name, size) for name, size in sizes.items() if size % 8]
