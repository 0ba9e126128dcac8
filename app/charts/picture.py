"""A chart as data: what is drawn, what the pointer reads, and the table behind it. No Qt."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO

from app.run import Run
from core.gains import Gains

BAR = 0.38


@dataclass(frozen=True)
class Bars:
    """`base` is where each bar begins (0 if empty), `spread` its (lowest, highest). Hatched: estimated."""

    name: str
    x: Sequence[float]
    height: Sequence[float]
    token: str
    width: float = BAR
    base: Sequence[float] = ()
    spread: Sequence[tuple[float, float]] = ()
    hatched: bool = False


@dataclass(frozen=True)
class Dots:
    """Hollow: the vendor's. Crosses: estimated."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    token: str
    size: int = 7
    faint: bool = False
    hollow: bool = False
    crosses: bool = False


@dataclass(frozen=True)
class Line:
    """Straight from point to point; a `step` keeps its height until the next."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    token: str
    dashed: bool = False
    step: bool = False


Mark = Bars | Dots | Line


@dataclass(frozen=True)
class Tip:
    """What the pointer reads near a place."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Picture:
    """Without marks, `empty` says what to do. `names` are written under places of the x axis.

    `log` draws both axes logarithmic, `log_y` the
    upright one. `note` stands in the corner: what is not in the chart, where figures come from.
    """

    title: str
    x_label: str = ""
    y_label: str = ""
    marks: tuple[Mark, ...] = ()
    names: tuple[tuple[float, str], ...] = ()
    tips: tuple[Tip, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    log: bool = False
    log_y: bool = False
    note: str = ""
    empty: str = ""

    def csv(self) -> str:
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return out.getvalue()


@dataclass(frozen=True)
class Whole:
    """The time of the whole model run as one graph, and where the figure comes from."""

    us: float
    said: str


@dataclass(frozen=True)
class Context:
    """What a chart may need beyond the document: the GPUs that are meant, what is known of both, and other runs."""

    gpu: str = ""
    other_gpu: str = ""
    figures: dict[str, tuple[float, bool]] = field(default_factory=dict)  # workload -> (us, measured)
    other_figures: dict[str, tuple[float, bool]] = field(default_factory=dict)
    other_name: str = ""  # of the run to compare with; "" is the one before
    other_run: Run | None = None  # None while it is read
    gains: Gains | None = None  # None while they are worked out
    whole: Whole | None = None
    plans: tuple[str, str] = ("", "")  # the two to compare, as lists call them; "": the automatic, the one as it stands
