"""A piece of advice as data: what to change, where, what it costs or saves, and the change itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.gains import Times
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
    def workloads(self) -> dict[str, Workload]:
        """Everything that must be measured for its prices, by key."""
        return {w.key: w for way in self.ways for t in way.terms for w in (*t.before, *t.after)}


Estimate = Callable[[Workload], float | None]  # us, by the ranking rules


def priced(
    label: str, terms: Sequence[Term], times: Times, estimate: Estimate | None = None, saved_us: float | None = None
) -> Way:
    """The way with its price. `estimate` is asked only where a record is missing; `saved_us` is an estimate at hand."""
    parts = tuple(_price([t], times) for t in terms)
    whole = _price(terms, times)
    guess = saved_us
    if guess is None and estimate is not None and whole.gain_us is None:
        guess = _estimated(terms, estimate)
    whole = Price(whole.before_us, whole.after_us, whole.missing, whole.runs, guess)
    return Way(label, tuple(terms), whole, parts)


def _price(terms: Sequence[Term], times: Times) -> Price:
    missing: dict[str, None] = {}
    sides: list[float | None] = [0.0, 0.0]
    most = 0
    for term in terms:
        runs: set[str] = set()
        for side, workloads in enumerate((term.before, term.after)):
            timed = {w.key: times(w.key) for w in workloads}
            missing |= {key: None for key, t in timed.items() if t is None}
            known = [t for w in workloads if (t := timed[w.key]) is not None]
            runs |= {t.run for t in known}
            so_far = sides[side]
            whole = so_far is not None and len(known) == len(workloads) > 0
            often = term.count * (term.scale if side else 1.0)
            sides[side] = so_far + often * sum(t.ours for t in known) if so_far is not None and whole else None
        most = max(most, len(runs))
    return Price(sides[0], sides[1], tuple(missing), most)


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
