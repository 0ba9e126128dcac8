"""Charts of one against another: plan A and B, run A and B, GPU A and B."""

from app.charts.picture import BAR, Bars, Context, Mark, Picture, Tip
from app.document import Document
from app.format import micros, ratio, spread
from core.fusion.plan import FusionPlan
from templates.gpu import known_gpu


def plans(document: Document, context: Context) -> Picture:
    """The automatic plan against the plan as it stands: measured time, and what is only estimated on top."""
    if document.plan == document.automatic:
        return Picture(
            "Plan A against plan B", empty="Change the plan (fuse, split) to compare it with the automatic one."
        )
    sums = [_sum(document, plan) for plan in (document.automatic, document.plan)]
    names = ("automatic", "edited")
    marks: list[Mark] = [Bars(f"measured ({document.run.provenance})", [0, 1], [s[0] for s in sums], "ours", 0.5)]
    if any(s[1] for s in sums):
        marks.append(Bars("estimated", [0, 1], [s[1] for s in sums], "ours", 0.5, [s[0] for s in sums], hatched=True))
    tips = tuple(
        Tip(i, s[0] + s[1], f"{n}: {micros(s[0])} measured, {micros(s[1])} estimated, {s[2]} regions without a figure")
        for i, (n, s) in enumerate(zip(names, sums, strict=True))
    )
    unknown = max(s[2] for s in sums)
    note = "tuned regions, each timed alone" + (f"; {unknown} without a figure" if unknown else "")
    rows = tuple(
        (n, r.id, r.workload.key, *_time(document, r.workload.key))
        for n, plan in zip(names, (document.automatic, document.plan), strict=True)
        for r in plan.regions
        if r.workload is not None
    )
    return Picture(
        "Plan A against plan B", "", "us", tuple(marks), ((0.0, names[0]), (1.0, names[1])), tips,
        ("plan", "region", "workload", "us", "from"), rows, note=note,
    )  # fmt: skip


def _time(document: Document, key: str) -> tuple[float | str, str]:
    run, estimate = document.run.workloads.get(key), document.estimates.get(key)
    if run is not None and run.best is not None:
        return run.best.us, document.run.provenance
    return (estimate.us, "estimated") if estimate is not None else ("", "no figure")


def _sum(document: Document, plan: FusionPlan) -> tuple[float, float, int]:
    """(measured us, estimated us, regions without a figure) of a plan's tuned regions."""
    measured, estimated, unknown = 0.0, 0.0, 0
    for key, regions in plan.workloads.items():
        us, source = _time(document, key)
        if isinstance(us, str):
            unknown += len(regions)
        elif source == "estimated":
            estimated += us * len(regions)
        else:
            measured += us * len(regions)
    return measured, estimated, unknown


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
