"""All advice on a model, and what would have to be measured for its prices."""

from collections.abc import Callable, Collection, Iterable

from core.advise.activations import advise_activations
from core.advise.advice import Advice, Kind
from core.advise.batches import advise_batches
from core.advise.deepen import advise_deepening
from core.advise.roofline import advise_roofline
from core.advise.shapes import advise_shapes
from core.advise.subject import Subject
from templates.workload import Workload

_FINDERS: dict[Kind, Callable[[Subject], list[Advice]]] = {
    Kind.ACTIVATION: advise_activations,
    Kind.DEEPEN: advise_deepening,
    Kind.SHAPE: advise_shapes,
    Kind.ROOFLINE: advise_roofline,
    Kind.BATCH: advise_batches,
}


def advise(subject: Subject, kinds: Collection[Kind] = tuple(Kind)) -> list[Advice]:
    """Advice of these kinds, by measured gain; behind it what is only estimated, then what is not known."""
    found = [advice for kind in Kind if kind in kinds for advice in _FINDERS[kind](subject)]
    return sorted(found, key=_order)


def _order(advice: Advice) -> tuple[int, float]:
    price = advice.price
    if price.gain_us:
        return 0, -price.gain_us
    return (1, -price.estimate_us) if price.estimate_us is not None else (2, 0.0)


def to_measure(advice: Iterable[Advice]) -> list[Workload]:
    """Every workload that the prices rest on, once. All of them in one run: only figures of one run compare."""
    found: dict[str, Workload] = {}
    for one in advice:
        found |= one.workloads
    return list(found.values())
