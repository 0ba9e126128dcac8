"""A piece of advice as data: what to change, where, what it costs or saves, and the change itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from templates.workload import Workload


class Kind(StrEnum):
    """What a piece of advice is about."""

    ACTIVATION = "activation"  # another function in the epilogues
    DEEPEN = "deepen"  # a 1x1 convolution behind one that can take it into its kernel
    SHAPE = "shape"  # a size that misses an alignment or a tile
    ROOFLINE = "roofline"  # a layer far below what the GPU allows, and why
    BATCH = "batch"  # where the curve of time over batch bends


# --- the change ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """An activation in the graph: its nodes, in order, and the tensor it reads; `op` names it as templates.epilogue."""

    nodes: tuple[str, ...]
    tensor: str
    op: str


@dataclass(frozen=True)
class SwapActivations:
    """Every site computes `op` instead. Another function: the model is to be trained again."""

    sites: tuple[Site, ...]
    op: str
    keeps = False


@dataclass(frozen=True)
class Deepen:
    """Behind each (tensor, channels) a 1x1 convolution of the same width, the identity, and a ReLU where `relu`.

    The tensors are outputs of a ReLU where `relu` is set, so that the model computes what it did.
    """

    places: tuple[tuple[str, int], ...]
    relu: bool
    keeps = True


@dataclass(frozen=True)
class Widen:
    """The channels that the node makes become `width`, filled up with zeros, wherever they are read."""

    node: str
    width: int
    keeps = True


@dataclass(frozen=True)
class SetBatch:
    """The model for batches of this size. A sample's result stays."""

    batch: int
    keeps = True


Change = SwapActivations | Deepen | Widen | SetBatch


# --- the price -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """`count` times, the workloads `before` give way to those `after`. Empty `after`: nothing stands against it.

    `scale`: how often the latter run for one run of the former, where they do another amount of work.
    """

    count: int
    before: tuple[Workload, ...]
    after: tuple[Workload, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class Price:
    """Sums over the terms, us; None where a record is missing. Measured figures only, but for `estimate_us`.

    `missing`: keys of workloads without a record. `runs`: how many tuning runs the figures of a term come from, of the
    term with most; clocks differ between runs, so of more than one there is no gain. `estimate_us`: what the ranking
    rules, or the roofline, expect to be saved; None where nothing was estimated.
    """

    before_us: float | None
    after_us: float | None
    missing: tuple[str, ...] = ()
    runs: int = 0
    estimate_us: float | None = None

    @property
    def gain_us(self) -> float | None:
        """What is saved; below zero what it costs."""
        if self.before_us is None or self.after_us is None or self.runs > 1:
            return None
        return self.before_us - self.after_us


@dataclass(frozen=True)
class Way:
    """One way to follow the advice. `parts`: the price of each term by its own, in the order of `terms`."""

    label: str
    terms: tuple[Term, ...]
    price: Price
    parts: tuple[Price, ...] = ()


@dataclass(frozen=True)
class Advice:
    """`ways` has at least one; the first is what the advice comes to. `facts` are (what, how much) beside the price.

    `change` is None where the model's file has nothing to change, `unchanged` then says why.
    """

    id: str
    kind: Kind
    what: str
    why: str
    regions: tuple[str, ...]
    nodes: tuple[str, ...]
    ways: tuple[Way, ...]
    change: Change | None = None
    unchanged: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def price(self) -> Price:
        """Of the first way."""
        return self.ways[0].price

    @property
    def unpriced(self) -> dict[str, Workload]:
        """What must be measured, in one run, for the prices that are not known: both sides of each such term."""
        open_ = [
            term
            for way in self.ways
            for term, part in zip(way.terms, way.parts or (way.price,) * len(way.terms), strict=True)
            if part.missing or part.runs > 1
        ]
        return {w.key: w for term in open_ for w in (*term.before, *term.after)}


Estimate = Callable[[Workload], float | None]  # us, by the ranking rules
History = Callable[[str], Mapping[str, float]]  # workload key -> run -> us of the best kernel, the newest run first


def priced(label: str, terms: Sequence[Term], history: History, estimate: Estimate | None = None) -> Way:
    """The way with its price; `estimate` is asked only where there is no measured gain."""
    parts = tuple(_price(term, history) for term in terms)
    before, after = ([getattr(p, side) for p in parts] for side in ("before_us", "after_us"))
    whole = Price(
        sum(before) if parts and None not in before else None,
        sum(after) if parts and None not in after else None,
        tuple(dict.fromkeys(key for p in parts for key in p.missing)),
        max((p.runs for p in parts), default=0),
    )
    if estimate is not None and whole.gain_us is None:
        whole = replace(whole, estimate_us=_estimated(terms, estimate))
    return Way(label, tuple(terms), whole, parts)


def _price(term: Term, history: History) -> Price:
    """By the newest run that measured all of the term's workloads, else by the newest of each."""
    figures = {w.key: history(w.key) for w in (*term.before, *term.after)}
    missing = tuple(key for key, by_run in figures.items() if not by_run)
    first, *others = figures.values()
    common = next((run for run in first if all(run in by_run for by_run in others)), None)
    chosen = {key: common or next(iter(by_run)) for key, by_run in figures.items() if by_run}

    def total(workloads: tuple[Workload, ...], often: float) -> float | None:
        if not workloads or any(w.key in missing for w in workloads):
            return None
        return often * sum(figures[w.key][chosen[w.key]] for w in workloads)

    runs = len(set(chosen.values()))
    return Price(total(term.before, term.count), total(term.after, term.count * term.scale), missing, runs)


def _estimated(terms: Sequence[Term], estimate: Estimate) -> float | None:
    saved = 0.0
    for term in terms:
        for sign, workloads in ((1.0, term.before), (-term.scale, term.after)):
            for workload in workloads:
                us = estimate(workload)
                if us is None:
                    return None
                saved += sign * term.count * us
    return saved
