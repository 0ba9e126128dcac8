"""Charts of one run: each region against the vendor, the whole as a waterfall, the roofline, the search as it goes."""

from itertools import accumulate

from app.charts.picture import BAR, Bars, Context, Dots, Line, Mark, Picture, Tip
from app.document import Document
from app.format import figures, micros, ratio, spread
from app.run import WorkloadRun
from core.fusion.plan import Region
from core.measure.measurement import Measurement
from core.roofline import point, ridge, roof_tflops
from templates.gpu import GpuSpec, known_gpu

NOTHING = "Press Tune, and each region appears here against the vendor's kernel."


def measured(document: Document, region: Region) -> WorkloadRun | None:
    run = document.workload_run(region)
    return run if run is not None and (run.best or run.vendor) else None


def against_vendor(document: Document, context: Context) -> Picture:
    """Time of each tuned region, ours and the vendor's, with spread; estimates hatched."""
    shown = [r for r in document.plan.regions if measured(document, r) or document.estimate(r)]
    said = document.run.provenance
    marks: list[Mark] = []
    for name, shift, token in (("ours", -BAR / 2, "ours"), ("vendor", BAR / 2, "vendor")):
        found = [(i, m) for i, r in enumerate(shown) if (m := _figure(document, r, name)) is not None]
        if found:
            xs, ms = [i + shift for i, _ in found], [m for _, m in found]
            marks.append(Bars(f"{name}, {said}", xs, [m.us for m in ms], token, spread=[m.spread_us for m in ms]))
    guesses = [
        (i - BAR / 2, e.us)
        for i, r in enumerate(shown)
        if _figure(document, r, "ours") is None and (e := document.estimate(r)) is not None
    ]
    if guesses:
        marks.append(Bars("ours, estimated", [x for x, _ in guesses], [y for _, y in guesses], "ours", hatched=True))
    return Picture(
        "Regions against the vendor", "", "us", tuple(marks),
        tuple((float(i), r.id) for i, r in enumerate(shown)),
        tuple(Tip(i, 0.0, "\n".join(region_lines(document, r))) for i, r in enumerate(shown)),
        ("region", "workload", "ours us", "vendor us", "vendor", "speed-up", "estimate us", "from"),
        tuple(_row(document, r) for r in shown), empty=NOTHING,
    )  # fmt: skip


def _figure(document: Document, region: Region, side: str) -> Measurement | None:
    run = measured(document, region)
    return (run.best if side == "ours" else run.vendor) if run is not None else None


def region_lines(document: Document, region: Region) -> list[str]:
    lines, run, estimate = [region.id], measured(document, region), document.estimate(region)
    if run and run.best:
        lines += [f"ours {micros(run.best.us)}, {document.run.provenance}", f"  {spread(run.best)}"]
    if run and run.vendor:
        lines += [f"{run.vendor.source} {micros(run.vendor.us)}", f"  {spread(run.vendor)}"]
    if run and run.speedup:
        lines.append(ratio(run.speedup))
    if estimate is not None and not (run and run.best):
        lines.append(f"estimated {micros(estimate.us)}, not measured")
    return lines


def _row(document: Document, region: Region) -> tuple[object, ...]:
    run, estimate = measured(document, region), document.estimate(region)
    best, vendor = (run.best, run.vendor) if run else (None, None)
    return (
        region.id, region.workload.key if region.workload else "", best.us if best else "",
        vendor.us if vendor else "", vendor.source if vendor else "", run.speedup if run and run.speedup else "",
        estimate.us if estimate else "", document.run.provenance if run else "estimated",
    )  # fmt: skip


def waterfall(document: Document, context: Context) -> Picture:
    """Where the time goes: each tuned region on top of those before it, then their sum beside the whole model's time.

    A region that was not timed has its estimate, hatched; one without that either is named in the note.
    """
    shown: list[tuple[Region, float, bool]] = []  # (region, us, measured)
    for region in document.plan.regions:
        run, estimate = measured(document, region), document.estimate(region)
        if run is not None and run.best is not None:
            shown.append((region, run.best.us, True))
        elif estimate is not None:
            shown.append((region, estimate.us, False))
    if not any(known for _, _, known in shown):
        return Picture("Latency by region", empty="Press Tune to see where the time goes.")
    bases = list(accumulate((us for _, us, _ in shown), initial=0.0))
    total, said = bases[-1], document.run.provenance
    marks = _steps(shown, bases, said)
    names = [(float(i), r.id) for i, (r, _, _) in enumerate(shown)]
    tips = [
        Tip(
            i, 0, f"{r.id}: {micros(us)}, {us / total:.1%}{'' if known else ', estimated'}\nup to here {micros(b + us)}"
        )
        for i, ((r, us, known), b) in enumerate(zip(shown, bases, strict=False))
    ]
    rows = [(r.id, us, b + us, said if k else "estimated") for (r, us, k), b in zip(shown, bases, strict=False)]
    for x, (name, us, token, text) in enumerate(_sums(document, context, shown, total), start=len(shown)):
        marks.append(Bars(text.partition("\n")[0], [x + 0.5], [us], token, 0.9, hatched=token == "faint"))
        names.append((x + 0.5, name))
        tips.append(Tip(x + 0.5, us, f"{micros(us)}\n{text}"))
        rows.append((name, us, us, text.replace("\n", ", ")))
    left = len(document.plan.regions) - len(shown)
    untimed = f"; {left} regions that are not tuned have no time of their own" if left else ""
    return Picture(
        "Latency by region", "", "us", tuple(marks), tuple(names), tuple(tips),
        ("region", "us", "up to here us", "from"), tuple(rows), note=f"each timed alone, {said}{untimed}",
    )  # fmt: skip


def _steps(shown: list[tuple[Region, float, bool]], bases: list[float], said: str) -> list[Mark]:
    marks: list[Mark] = []
    for known, name in ((True, f"a region, {said}"), (False, "a region, estimated")):
        places = [i for i, s in enumerate(shown) if s[2] is known]
        if places:
            heights = [shown[i][1] for i in places]
            marks.append(Bars(name, places, heights, "ours", 0.8, [bases[i] for i in places], hatched=not known))
    return marks


def _sums(
    document: Document, context: Context, shown: list[tuple[Region, float, bool]], total: float
) -> list[tuple[str, float, str, str]]:
    """(name, us, token, what it is) of the bars behind the regions."""
    said = document.run.provenance
    guessed = sum(not known for _, _, known in shown)
    text = f"sum of {len(shown)} regions, ours" + (f"\n{guessed} of them estimated" if guessed else f"\n{said}")
    sums = [("sum", total, "faint" if guessed else "good", text)]
    peers = [run.vendor.us for r, _, _ in shown if (run := measured(document, r)) is not None and run.vendor]
    if len(peers) == len(shown):
        sums.append(("vendor", sum(peers), "vendor", f"sum, the vendor's kernels\n{ratio(sum(peers) / total)}"))
    if context.whole is not None and not guessed:
        rest = context.whole.us - total
        verb = (
            "more: regions without a time, launches" if rest >= 0 else "less: launches overlap, inputs stay in the L2"
        )
        sums.append(
            (
                "whole",
                context.whole.us,
                "text",
                f"whole model as one graph, {context.whole.said}\n{micros(abs(rest))} {verb}",
            )
        )
    return sums


def roofline(document: Document, context: Context) -> Picture:
    """Every region's best, the vendor's and every candidate under the GPU's roof."""
    gpu = known_gpu(document.run.gpu or context.gpu)
    marks: list[Mark] = []
    tips: list[Tip] = []
    rows: list[tuple[object, ...]] = []
    if gpu is None:
        return Picture("Roofline", empty="The rates of this GPU are not known, so there is no roof to draw.")
    works = {key: regions[0] for key, regions in document.plan.workloads.items()}
    cloud: tuple[list[float], list[float]] = ([], [])
    for row in document.run.rows:
        region = works.get(row.workload)
        if region is not None and region.workload is not None and row.us:
            at = point(region.workload, row.us, gpu)
            cloud[0].append(at.intensity)
            cloud[1].append(at.tflops)
            tips.append(
                Tip(at.intensity, at.tflops, f"{region.id} {row.name}\n{micros(row.us)}, {figures(at.tflops)} TFLOP/s")
            )
    sides: dict[str, tuple[list[float], list[float]]] = {"ours": ([], []), "vendor": ([], [])}
    for region in works.values():
        for side, (xs, ys) in sides.items():
            m = _figure(document, region, side)
            if m is None or region.workload is None:
                continue
            at = point(region.workload, m.us, gpu)
            xs.append(at.intensity)
            ys.append(at.tflops)
            bound = "memory" if at.memory_bound else "arithmetic"
            text = f"{region.id} {side}: {figures(at.tflops)} TFLOP/s, {at.share:.0%} of the roof ({bound} bound)"
            tips.append(Tip(at.intensity, at.tflops, text))
            rows.append((region.id, side, m.candidate, at.intensity, at.tflops, at.roof_tflops, m.us))
    guesses = _guessed_points(document, list(works.values()), gpu)
    if cloud[0]:
        marks.append(Dots("candidates", *cloud, "muted", 4, faint=True))
    for side, (xs, ys) in sides.items():
        if xs:
            marks.append(Dots(f"{side}, {document.run.provenance}", xs, ys, side, 9, hollow=side == "vendor"))
    if guesses:
        marks.append(Dots("ours, estimated", [t.x for t in guesses], [t.y for t in guesses], "ours", 9, crosses=True))
        tips += guesses
    if marks:
        ends = [m for mark in marks if isinstance(mark, Dots) for m in mark.x]
        roof = sorted({min(ends) / 2, ridge(gpu), max(*ends, ridge(gpu)) * 2})
        marks.append(Line(f"roof of the {gpu.name}", roof, [roof_tflops(gpu, x) for x in roof], "text"))
    return Picture(
        "Roofline", "FLOP per byte", "TFLOP/s", tuple(marks), (), tuple(tips),
        ("region", "side", "kernel", "FLOP/byte", "TFLOP/s", "roof TFLOP/s", "us"), tuple(rows), log=True,
        note="roof from the data sheet; traffic is the least possible", empty="Press Tune to place the regions.",
    )  # fmt: skip


def _guessed_points(document: Document, regions: list[Region], gpu: GpuSpec) -> list[Tip]:
    """Where the rules expect the regions that nobody measured."""
    found = []
    for region in regions:
        estimate = document.estimate(region)
        if estimate is not None and region.workload is not None and _figure(document, region, "ours") is None:
            at = point(region.workload, estimate.us, gpu)
            text = f"{region.id} estimated: {figures(at.tflops)} TFLOP/s, never timed"
            found.append(Tip(at.intensity, at.tflops, text))
    return found


def followed(document: Document) -> WorkloadRun | None:
    """The selected region's workload; else the one that was measured last."""
    region = document.selected_region()
    chosen = document.workload_run(region) if region is not None else None
    if chosen is not None and chosen.samples:
        return chosen
    sampled = [r for r in document.run.workloads.values() if r.samples]
    return max(sampled, key=lambda r: r.samples[-1][0], default=None)


def history(document: Document, context: Context) -> Picture:
    """All samples of one workload in the order they came, and the best so far."""
    run = followed(document)
    if run is None:
        return Picture("Tuning history", empty="Press Tune to follow the search.")
    owners = document.plan.workloads.get(run.key, [])
    xs, ys = [float(n) for n, _ in run.samples], [us for _, us in run.samples]
    best = [(float(x), y) for x, y in run.best_so_far]
    marks: list[Mark] = [Dots("candidates", xs, ys, "ours", 5, faint=True)]
    if best:
        steps = [*best, (xs[-1], best[-1][1])]
        marks.append(Line("best so far", [x for x, _ in steps], [y for _, y in steps], "ours", step=True))
    if run.vendor is not None:
        marks.append(Line(run.vendor.source, [min(xs), max(xs)], [run.vendor.us] * 2, "vendor", dashed=True))
    kernels = {m.us: row.name for row in (document.run.rows[i] for i in run.rows) if (m := row.measurement)}
    tips = tuple(Tip(x, y, f"{micros(y)}  {kernels.get(y, '')}".strip()) for x, y in zip(xs, ys, strict=True))
    title = f"{owners[0].id}: " if owners else ""
    return Picture(
        f"{title}candidates and the best so far, {document.run.provenance}", "measurements", "us", tuple(marks), (),
        tips, ("measurement", "us"), tuple(zip(xs, ys, strict=True)), log_y=True,
    )  # fmt: skip
