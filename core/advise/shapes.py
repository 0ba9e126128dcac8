"""Sizes that miss an alignment or a tile, and the nearest good ones (paper sections 3.2.3 and 4.3)."""

from collections.abc import Iterator
from dataclasses import replace

from core.advise.activations import lone
from core.advise.advice import Advice, Kind, Price, SetBatch, Term, Way, Widen, priced
from core.advise.batches import rebatched
from core.advise.channels import Stuck, Widened, widen
from core.advise.roofline import unaligned
from core.advise.subject import Subject
from core.fusion.operators import ANCHORS
from core.fusion.plan import Region
from core.fusion.values import counted
from core.search.waves import tile_shape, waves_of
from templates.attention import AttentionWorkload
from templates.workload import ConvWorkload, GemmWorkload, Single, Workload

ALIGNMENT = 8  # elements of 2 bytes in a 16-byte access
_WASTE = 0.1  # of a tile's columns beyond the result
_BETTER = 0.03  # of the model's time: less is not worth a word


def advise_shapes(subject: Subject) -> list[Advice]:
    """Channels (heads, features, vocabulary), then the batch."""
    return [*_channels(subject), *_heads(subject), *_batch(subject)]


# --- channels ------------------------------------------------------------------------------------------------------


def _channels(subject: Subject) -> Iterator[Advice]:
    """Each set of channels that go together once, by the first node that makes them."""
    seen: set[str] = set()
    for region in subject.plan.regions:
        node, work = subject.graph.node(region.nodes[0]), region.workload
        if node.op not in ANCHORS or node.name in seen or not isinstance(work, GemmWorkload | ConvWorkload):
            continue
        if (isinstance(work, ConvWorkload) and work.groups > 1) or not lone(subject.graph, region):
            continue
        size = work.n if isinstance(work, GemmWorkload) else work.k
        if region.operands is None or subject.graph.constant(region.operands.b) is None:
            continue
        good = _good_sizes(subject, work, size)
        if good is None:
            yield from _inputs(subject, region, work)
            continue
        why, sizes = good
        advice, made = _widening(subject, region, size, sizes, why)
        seen.update(made.makers if made else ())
        yield advice


def _good_sizes(subject: Subject, work: Single, size: int) -> tuple[str, list[int]] | None:
    """Why the size is not good, and the nearest that are, the larger one first; None if it is good."""
    if size % ALIGNMENT:
        up = -(-size // ALIGNMENT) * ALIGNMENT
        why = f"{size} is no multiple of {ALIGNMENT}: rows of the result do not start at 16 bytes"
        return why, [n for n in (up, up - ALIGNMENT) if n > 0]
    best = subject.best(work.key)
    tile = tile_shape(best.candidate) if best is not None and best.candidate is not None else None
    if tile is None:
        return None
    up = -(-size // tile[1]) * tile[1]
    if 1 - size / up <= _WASTE:
        return None
    why = f"its best kernel has tiles of {tile[0]}x{tile[1]}: {1 - size / up:.0%} of their columns lie beyond {size}"
    return why, [n for n in (up, up - tile[1]) if n > 0]


def _widening(subject: Subject, region: Region, size: int, sizes: list[int], why: str) -> tuple[Advice, Widened | None]:
    name = region.nodes[0]
    try:
        made, stuck = widen(subject.graph, name, sizes[0]), ""
    except Stuck as reason:
        made, stuck = None, str(reason)
    touched = _touched(subject, made) if made else {region.id: (True, False)}
    regions = [r for r in subject.plan.regions if r.id in touched]
    ways = []
    for width in sizes:
        terms = [
            Term(1, (r.workload,), (_resized(r.workload, width, *touched[r.id]),))
            for r in regions
            if isinstance(r.workload, GemmWorkload | ConvWorkload)
        ]
        ways.append(priced(f"{size} to {width}", terms, subject.history, subject.estimate))
    facts = [("nearest good sizes", " and ".join(map(str, sorted(sizes))))]
    if made and made.cropped:
        facts.append(("behind it", f"a Slice back to {size}, which the price does not hold"))
    advice = Advice(
        id=f"shape-{region.id}",
        kind=Kind.SHAPE,
        what=f"{sizes[0]} channels in place of {size}, made by {name}",
        why=why,
        regions=tuple(r.id for r in regions),
        nodes=tuple(dict.fromkeys((*(made.makers if made else (name,)), *(made.readers if made else ())))),
        ways=tuple(ways),
        change=Widen(name, sizes[0]) if made else None,
        unchanged=f"zeros can't fill it up: {stuck}" if stuck else "",
        facts=tuple(facts),
    )
    return advice, made


def _touched(subject: Subject, made: Widened) -> dict[str, tuple[bool, bool]]:
    """Region -> (whether it makes the channels, whether it reads them)."""
    found: dict[str, tuple[bool, bool]] = {}
    for names, at in ((made.makers, 0), (made.readers, 1)):
        for name in names:
            region = subject.plan.region_of(name)
            if region is not None and region.workload is not None:
                both = [*found.get(region.id, (False, False))]
                both[at] = True
                found[region.id] = (both[0], both[1])
    return found


def _resized(work: Single, width: int, makes: bool, reads: bool) -> Single:
    if isinstance(work, GemmWorkload):
        return replace(work, n=width if makes else work.n, k=width if reads else work.k)
    return replace(work, k=width if makes else work.k, c=width if reads else work.c)


def _inputs(subject: Subject, region: Region, work: Single) -> Iterator[Advice]:
    """A product over features of the model's input whose number is odd: nothing before it can be widened."""
    size = work.k if isinstance(work, GemmWorkload) else work.c
    assert region.operands is not None
    tensor = region.operands.a
    axis = -1 if isinstance(work, GemmWorkload) and subject.graph.node(region.nodes[0]).op != "Conv" else 1
    if tensor not in subject.graph.inputs or size % ALIGNMENT == 0 or subject.graph.shape(tensor)[axis] != size:
        return  # a stem's few channels are filled up where they enter
    up = -(-size // ALIGNMENT) * ALIGNMENT
    terms = [Term(1, (work,), (_resized(work, up, False, True),))]
    yield Advice(
        id=f"shape-{region.id}-input",
        kind=Kind.SHAPE,
        what=f"{up} features of the input {tensor} in place of {size}, read by {region.nodes[0]}",
        why=f"{size} is no multiple of {ALIGNMENT}: its rows do not start at 16 bytes",
        regions=(region.id,),
        nodes=region.nodes[:1],
        ways=(priced(f"{size} to {up}", terms, subject.history, subject.estimate),),
        unchanged="the caller gives the input: let it hold zeros in the new features",
    )


# --- heads ---------------------------------------------------------------------------------------------------------


def _heads(subject: Subject) -> Iterator[Advice]:
    for workload, regions in subject.groups():
        if not isinstance(workload, AttentionWorkload) or not unaligned(workload):
            continue
        up = -(-workload.head_dim // ALIGNMENT) * ALIGNMENT
        price = Price(None, None, (workload.key,))
        timed = subject.times(workload.key)
        if timed is not None:
            price = Price(len(regions) * timed.ours, None, (), 1)
        yield Advice(
            id=f"shape-{regions[0].id}-heads",
            kind=Kind.SHAPE,
            what=f"heads of {up} in place of {workload.head_dim} in {counted(len(regions), 'attention')}",
            why=f"{workload.head_dim} is no multiple of {ALIGNMENT}: rows of a head do not start at 16 bytes",
            regions=tuple(r.id for r in regions),
            nodes=tuple(r.nodes[0] for r in regions),
            ways=(Way(f"{workload.head_dim} to {up}", (Term(len(regions), (workload,), ()),), price),),
            unchanged="the width of a head is spread over projections and reshapes; change it where the model is made",
        )


# --- batch ---------------------------------------------------------------------------------------------------------


def _batch(subject: Subject) -> Iterator[Advice]:
    """A batch near the model's own whose tiles fill the last wave better, by the tiles of today's best kernels."""
    parts = []  # (workload, regions, its record's candidate, us)
    for workload, regions in subject.groups():
        best, timed = subject.best(workload.key), subject.times(workload.key)
        if best is None or best.candidate is None or timed is None:
            return
        parts.append((workload, len(regions), best.candidate, timed.ours))
    now = sum(count * us for _, count, _, us in parts)

    def filled(batch: int) -> float:
        """Estimated us for as many samples as the model's own batch holds."""
        total = 0.0
        for workload, count, candidate, us in parts:
            before = waves_of(workload, candidate, subject.gpu)
            other = rebatched(workload, subject.batch, batch)
            after = waves_of(other, candidate, subject.gpu) if other is not None else None
            share = 1.0
            if before is not None and after is not None:
                share = (-(-after.tiles // subject.gpu.sm_count) / batch) / (
                    -(-before.tiles // subject.gpu.sm_count) / subject.batch
                )
            total += count * us * share
        return total

    near = range(max(1, subject.batch * 3 // 4), subject.batch * 5 // 4 + 1)
    if not parts or subject.batch not in near:
        return
    chosen = min(near, key=lambda b: (filled(b), abs(b - subject.batch)))
    saved = now - filled(chosen)
    if saved <= _BETTER * now:
        return
    works: list[Workload] = [w for w, *_ in parts]
    yield Advice(
        id="shape-batch",
        kind=Kind.SHAPE,
        what=f"batch {chosen} in place of {subject.batch}",
        why="by the tiles of today's best kernels the last waves are fuller, so a sample takes less",
        regions=(),
        nodes=(),
        ways=(
            Way(
                f"batch {subject.batch} to {chosen}",
                tuple(Term(count, (w,), ()) for w, (_, count, *_) in zip(works, parts, strict=True)),
                Price(now, None, (), 1, saved),
            ),
        ),
        change=SetBatch(chosen),
        facts=(("saved", f"estimated for {subject.batch} samples"),),
    )
