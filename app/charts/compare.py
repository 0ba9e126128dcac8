"""Charts of one against another: plan A and B, run A and B, GPU A and B."""

from collections.abc import Mapping

from app.charts.picture import BAR, Bars, Context, Mark, Picture, Tip
from app.document import Document
from app.format import micros, ratio, spread
from app.plan_figures import AS_IT_STANDS, AUTOMATIC, known_figures, named_plans, sources, verdict
from core.fusion.compare import Comparison, Difference, Figure, Side, compare
from core.fusion.plan import Region
from templates.gpu import known_gpu


def plans(document: Document, context: Context) -> Picture:
    """Where two plans differ: each difference on both sides, measured solid, what is estimated hatched on top."""
    title, named = "Plan A against plan B", named_plans(document)
    chosen = zip(context.plans, (AUTOMATIC, AS_IT_STANDS), strict=True)
    sides = [name if name in named else usual for name, usual in chosen]
    known = known_figures(document)
    a, b = named[sides[0]], named[sides[1]]
    found = compare(a, b, known)
    if not found.differences:
        same = "Change the plan (fuse, split), or choose another one above, to compare two."
        return Picture(title, empty=f"Both plans run the same regions. {same}")
    marks = [m for at, name in enumerate(sides) for m in _side(found, at, f"{'AB'[at]}: {name}", known)]
    if not marks:
        return Picture(title, empty="Nobody timed the regions in which these plans differ. Press Tune to know.")
    names = tuple((float(i), _ids(d.a if d.a.regions else d.b)) for i, d in enumerate(found.differences))
    tips = tuple(Tip(i, 0, _difference_text(d, known)) for i, d in enumerate(found.differences))
    said = sources((s for d in found.differences for s in (d.a, d.b)), known)
    rows = tuple(
        (name, r.id, r.workload.key if r.workload else "", *_figure(r, known))
        for name, plan in zip(sides, (a, b), strict=True)
        for r in plan.regions
    )
    return Picture(
        title, "", "us", tuple(marks), names, tips, ("plan", "region", "workload", "us", "from"), rows,
        note=verdict(found, said),
    )  # fmt: skip


def _side(found: Comparison, at: int, name: str, known: Mapping[str, Figure]) -> list[Mark]:
    """The bars of one plan."""
    sides = [d.b if at else d.a for d in found.differences]
    if untimed := sum(len(s.unknown) for s in sides):
        name += f" without {untimed} untimed region{'s' * (untimed > 1)}"
    shift, token = (at - 0.5) * BAR, "ours" if at else "vendor"
    marks: list[Mark] = []
    if timed := [i for i, s in enumerate(sides) if s.measured_us]:
        heights, said = [sides[i].measured_us for i in timed], sources([sides[i] for i in timed], known)
        marks.append(Bars(f"{name}, {said}", [i + shift for i in timed], heights, token))
    if guessed := [i for i, s in enumerate(sides) if s.estimated_us]:
        heights, base = [sides[i].estimated_us for i in guessed], [sides[i].measured_us for i in guessed]
        marks.append(Bars(f"{name}, estimated", [i + shift for i in guessed], heights, token, base=base, hatched=True))
    return marks


def _ids(side: Side) -> str:
    ids = [r.id for r in side.regions]
    return ids[0] if len(ids) == 1 else f"{ids[0]}..{ids[-1]}"


def _difference_text(difference: Difference, known: Mapping[str, Figure]) -> str:
    lines = []
    for name, side in (("A", difference.a), ("B", difference.b)):
        for region in side.regions:
            us, said = _figure(region, known)
            lines.append(f"{name} {region.id}: {f'{micros(us)}, {said}' if isinstance(us, float) else said}")
    gain = difference.gain_us
    return "\n".join(
        [*lines, *([f"B {'saves' if gain >= 0 else 'costs'} {micros(abs(gain))}"] if gain is not None else [])]
    )


def _figure(region: Region, known: Mapping[str, Figure]) -> tuple[float | str, str]:
    figure = known.get(region.workload.key) if region.workload else None
    return (figure.us, figure.source) if figure is not None else ("", "not measured")


def runs(document: Document, context: Context) -> Picture:
    """The run before, or a recorded one, against this one, for the workloads of both; with spread."""
    title, now = "Run A against run B", document.run
    before, name = document.baseline, "before"
    if context.other_name:
        before, name = context.other_run, context.other_name
        if before is None:
            return Picture(title, empty=f"Reading {name}.")
    if before is None or not any(w.best for w in now.workloads.values()):
        return Picture(title, empty="Tune or replay twice, or choose a recorded run above, to compare two runs.")
    pairs = [
        (regions[0].id, key, a.best, b.best)
        for key, regions in document.plan.workloads.items()
        if (a := before.workloads.get(key)) and (b := now.workloads.get(key)) and a.best and b.best
    ]
    if not pairs:
        return Picture(title, empty=f"{name} and this run share no finished workload: other models, batches or plans.")
    marks = tuple(
        Bars(said, [i + shift for i in range(len(pairs))], [m.us for m in ms], token, spread=[m.spread_us for m in ms])
        for said, shift, ms, token in (
            (
                name if name == before.provenance else f"{name}, {before.provenance}",
                -BAR / 2,
                [p[2] for p in pairs],
                "vendor",
            ),
            (f"now, {now.provenance}", BAR / 2, [p[3] for p in pairs], "ours"),
        )
    )
    tips = tuple(
        Tip(i, 0, f"{r}\n{name} {micros(a.us)}, {spread(a)}\nnow {micros(b.us)}, {spread(b)}\n{ratio(a.us / b.us)}")
        for i, (r, _, a, b) in enumerate(pairs)
    )
    return Picture(
        title, "", "us", marks, tuple((float(i), p[0]) for i, p in enumerate(pairs)), tips,
        ("region", "workload", f"{name} us", "now us"), tuple((r, key, a.us, b.us) for r, key, a, b in pairs),
        note="clocks differ between runs: look at differences well beyond the spread",
    )  # fmt: skip


def gpus(document: Document, context: Context) -> Picture:
    """The chosen GPU against another: from records where there are some, else estimated and hatched."""
    if not context.other_gpu:
        return Picture("GPU A against GPU B", empty="Choose a second GPU above to compare it with.")
    rows = [
        (regions[0].id, key, *context.figures.get(key, ("", False)), *context.other_figures.get(key, ("", False)))
        for key, regions in document.plan.workloads.items()
    ]
    sides = ((context.gpu, -BAR / 2, 2, "ours"), (context.other_gpu, BAR / 2, 4, "vendor"))
    marks: list[Mark] = []
    for gpu, shift, at, token in sides:
        for known in (True, False):
            found = [(i + shift, float(r[at])) for i, r in enumerate(rows) if r[at] != "" and r[at + 1] is known]
            if found:
                said = "recorded" if known else "estimated"
                xs, ys = [x for x, _ in found], [y for _, y in found]
                marks.append(Bars(f"{_short(gpu)}, {said}", xs, ys, token, hatched=not known))
    tips = [Tip(i, 0, _gpu_text(r, context)) for i, r in enumerate(rows)]
    table = tuple((r[0], r[1], r[2], _said(r[3]), r[4], _said(r[5])) for r in rows)
    return Picture(
        "GPU A against GPU B", "", "us", tuple(marks),
        tuple((float(i), r[0]) for i, r in enumerate(rows)), tuple(tips),
        ("region", "workload", f"{context.gpu} us", "from", f"{context.other_gpu} us", "from"), table,
        note="estimates rank candidates; they were never timed", empty="Working out the figures of both.",
    )  # fmt: skip


def _said(measured: bool) -> str:
    return "recorded" if measured else "estimated"


def _short(gpu: str) -> str:
    known = known_gpu(gpu)
    return (known.name if known else gpu).removeprefix("NVIDIA ")


def _gpu_text(row: tuple, context: Context) -> str:
    lines = [row[0]]
    for gpu, us, measured in ((context.gpu, row[2], row[3]), (context.other_gpu, row[4], row[5])):
        lines.append(f"{_short(gpu)} {micros(us)}, {_said(measured)}" if us != "" else f"{_short(gpu)}: no figure")
    return "\n".join(lines)
