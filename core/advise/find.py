"""All advice on a model, and what would have to be measured for its prices."""

from collections.abc import Callable, Collection, Iterable, Sequence

from core.advise.activations import advise_activations
from core.advise.advice import Advice, Kind
from core.advise.batches import BATCHES, advise_batches
from core.advise.deepen import advise_deepening
from core.advise.roofline import advise_roofline
from core.advise.shapes import advise_shapes
from core.advise.subject import Subject
from templates.workload import Workload


def advise(subject: Subject, kinds: Collection[Kind] = tuple(Kind), batches: Sequence[int] = BATCHES) -> list[Advice]:
    """Advice of these kinds, by measured gain; behind it what is only estimated, then what is not known.

    `batches`: the sizes of the batch curve.
    """
    finders: dict[Kind, Callable[[], list[Advice]]] = {
        Kind.ACTIVATION: lambda: advise_activations(subject),
        Kind.DEEPEN: lambda: advise_deepening(subject),
        Kind.SHAPE: lambda: advise_shapes(subject),
        Kind.ROOFLINE: lambda: advise_roofline(subject),
        Kind.BATCH: lambda: advise_batches(subject, batches),
    }
    found = [advice for kind, find in finders.items() if kind in kinds for advice in find()]
    return sorted(found, key=_order)


def _order(advice: Advice) -> tuple[int, float]:
    price = advice.price
    if price.gain_us:
        return 0, -price.gain_us
    return (1, -price.estimate_us) if price.estimate_us is not None else (2, 0.0)


def to_measure(advice: Iterable[Advice]) -> list[Workload]:
    """Every workload that a price lacks, once, with what it is compared with: only figures of one run compare."""
    found: dict[str, Workload] = {}
    for one in advice:
        found |= one.unpriced
    return list(found.values())
