"""Numbers as the window shows them: three significant figures, always with a unit."""

from html import escape

from core.measure.measurement import Measurement
from templates.attention import AttentionWorkload
from templates.types import Residence
from templates.workload import ConvWorkload, GemmWorkload, Pair, TowerWorkload, Workload

RESIDENCES = {Residence.RF: "RF", Residence.SMEM: "smem"}


def figures(value: float, digits: int = 3) -> str:
    """`digits` significant figures without an exponent: 1234 -> "1,230", 0.0456 -> "0.0456"."""
    if value == 0 or value != value:
        return "0" if value == 0 else "not a number"
    if abs(value) in (float("inf"),):
        return "infinite"
    rounded = float(f"{value:.{digits}g}")
    whole = len(str(int(abs(rounded)))) if abs(rounded) >= 1 else 0
    if whole:
        return f"{rounded:,.{max(0, digits - whole)}f}"
    return f"{rounded:.10f}".rstrip("0") if abs(rounded) >= 1e-6 else f"{rounded:.2e}"


def micros(us: float) -> str:
    """A time in us, or in ms from 1,000 us."""
    return f"{figures(us / 1000)} ms" if us >= 999.5 else f"{figures(us)} us"


def spread(measurement: Measurement) -> str:
    """The lowest and the highest sample, and how many there are."""
    low, high = measurement.spread_us
    return f"{figures(low)} to {figures(high)} us, {len(measurement.samples_us)} samples"


def ratio(value: float) -> str:
    return f"{value:.2f}x"


def seconds(value: float) -> str:
    """A duration for people: "8 s", "1 min 40 s", "2 h 5 min"."""
    whole = max(0, round(value))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def nbytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024 or unit == "MiB":
            return f"{value:.0f} B" if unit == "B" else f"{figures(value)} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def rate(workload: Workload, us: float) -> str:
    return f"{figures(workload.flops / us / 1e6)} TFLOP/s"


def shape(extents: tuple[int, ...]) -> str:
    return " x ".join(map(str, extents)) if extents else "scalar"


def workload_line(workload: Workload) -> str:
    """One short line: "conv 3x3 64 -> 128, 56x56, stride 2, batch 32"; a pair ends with ", then -> 256, in smem"."""
    if isinstance(workload, Pair):
        kept = f", in {RESIDENCES[workload.residence]}" if workload.residence else ""
        return f"{workload_line(workload.first)}, then -> {workload.n1}{kept}"
    if isinstance(workload, TowerWorkload):
        return f"{workload_line(workload.pair)}, then -> {workload.n2}"
    if isinstance(workload, AttentionWorkload):
        return attention_line(workload)
    if isinstance(workload, GemmWorkload):
        batch = f", batch {workload.batch}" if workload.batch > 1 else ""
        return f"{workload.m} x {workload.n} x {workload.k}{batch}"
    return conv_line(workload)


def attention_line(w: AttentionWorkload) -> str:
    lengths = f"{w.q_len}" if w.q_len == w.kv_len else f"{w.q_len} over {w.kv_len}"
    widths = f"{w.head_dim}" if w.head_dim == w.value_dim else f"{w.head_dim} and {w.value_dim}"
    shared = "" if w.heads == w.kv_heads else f" ({w.kv_heads} of keys)"
    parts = [f"{w.heads} heads{shared} of {widths}", f"length {lengths}"]
    return ", ".join([*parts, *(["causal"] if w.causal else []), f"batch {w.batch}"])


def conv_line(w: ConvWorkload) -> str:
    parts = [f"{w.r}x{w.s} {w.c} -> {w.k}", f"{w.h}x{w.w}"]
    if w.stride != (1, 1):
        parts.append(f"stride {w.stride[0]}" if w.stride[0] == w.stride[1] else f"stride {w.stride[0]}x{w.stride[1]}")
    if w.groups > 1:
        parts.append(f"groups {w.groups}")
    return ", ".join([*parts, f"batch {w.n}"])


def one_line(text: str) -> str:
    """Names come from files: line breaks and tabs become spaces."""
    return " ".join(text.split())


def tip(text: str) -> str:
    """A tooltip that shows the text as it is, whatever it looks like, and keeps its lines."""
    return f"<p style='white-space:pre-wrap; margin:0'>{escape(text)}</p>" if text else ""
