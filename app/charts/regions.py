"""Charts of one run: each region against the vendor, the whole as a waterfall, the roofline, the search as it goes."""

from app.charts.picture import BAR, Bars, Context, Dots, Line, Mark, Picture, Tip
from app.document import Document
from app.format import figures, micros, ratio, spread
from app.run import WorkloadRun
from core.fusion.plan import Region
from core.measure.measurement import Measurement
from core.roofline import point, ridge, roof_tflops
from templates.gpu import known_gpu

NOTHING = "Press Tune, and each region appears here against the vendor's kernel."
MOST_DOTS = 6000


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
    """Where the time goes: each tuned region's best on top of those before it, then the sums."""
    known = [(r, run) for r in document.plan.regions if (run := measured(document, r)) and run.best]
    total, bases, heights = 0.0, [], []
    for _, run in known:
        bases.append(total)
        heights.append(run.best.us if run.best else 0.0)
        total += heights[-1]
    n = len(known)
    marks: list[Mark] = [Bars("a region, ours", list(range(n)), heights, "ours", 0.8, bases)] if known else []
    names = [(float(i), r.id) for i, (r, _) in enumerate(known)]
    tips = [
        Tip(i, b + h, f"{r.id}: {micros(h)}, {h / total:.1%}\nup to here {micros(b + h)}")
        for i, ((r, _), b, h) in enumerate(zip(known, bases, heights, strict=True))
    ]
    if known:
        marks.append(Bars("all regions, ours", [n + 0.5], [total], "good", 0.9))
        names.append((n + 0.5, "sum"))
        tips.append(Tip(n + 0.5, total, f"{n} regions {micros(total)}, {document.run.provenance}"))
        peers = [run.vendor.us for _, run in known if run.vendor]
        if len(peers) == n:
            marks.append(Bars("all regions, vendor", [n + 1.5], [sum(peers)], "vendor", 0.9))
            names.append((n + 1.5, "vendor"))
            tips.append(Tip(n + 1.5, sum(peers), f"the vendor {micros(sum(peers))}: {ratio(sum(peers) / total)}"))
    left = len(document.plan.regions) - n
    note = f"each timed alone, {document.run.provenance}; {left} regions are not timed" if known else ""
    rows = tuple((r.id, h, b + h) for (r, _), b, h in zip(known, bases, heights, strict=True))
    return Picture(
        "Latency by region", "", "us", tuple(marks), tuple(names), tuple(tips),
        ("region", "us", "up to here us"), rows, note=note, empty="Press Tune to see where the time goes.",
    )  # fmt: skip


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
        if region is not None and region.workload is not None and row.us and len(cloud[0]) < MOST_DOTS:
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
    if cloud[0]:
        marks.append(Dots("candidates", *cloud, "muted", 4, faint=True))
    for side, (xs, ys) in sides.items():
        if xs:
            marks.append(Dots(f"{side}, {document.run.provenance}", xs, ys, side, 9, hollow=side == "vendor"))
    if marks:
        ends = [m for mark in marks if isinstance(mark, Dots) for m in mark.x]
        roof = sorted({min(ends) / 2, ridge(gpu), max(*ends, ridge(gpu)) * 2})
        marks.append(Line(f"roof of the {gpu.name}", roof, [roof_tflops(gpu, x) for x in roof], "text"))
    return Picture(
        "Roofline", "FLOP per byte", "TFLOP/s", tuple(marks), (), tuple(tips),
        ("region", "side", "kernel", "FLOP/byte", "TFLOP/s", "roof TFLOP/s", "us"), tuple(rows), log=True,
        note="roof from the data sheet; traffic is the least possible", empty="Press Tune to place the regions.",
    )  # fmt: skip


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
        tips, ("measurement", "us"), tuple(zip(xs, ys, strict=True)),
    )  # fmt: skip
