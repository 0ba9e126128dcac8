"""Whether figures can be believed: what is told to the user beside them when something speaks against it.

The self-check is a copy within device memory, whose time follows from the memory's bandwidth alone: a GPU that is
shared, throttled or wrongly described is found before anything is compared on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles

from core.measure.measurement import Measurement

COPY_L2_MULTIPLE = 4  # bytes copied, in L2 sizes: neither end stays in the cache
_LEAST_SHARE, _MOST_SHARE = 0.5, 1.2  # of the described bandwidth that a copy reaches on a GPU of its own
_NOISE = 0.05  # of the median, between the quartiles of a finalist's samples


def copy_note(gbs: float, described_gbs: float) -> str:
    """What a copy's bandwidth (read and written bytes, GB/s) says against the GPU's figures; "" if nothing."""
    share = gbs / described_gbs
    if share < _LEAST_SHARE:
        return (
            f"self-check: a copy runs at {share:.0%} of this GPU's memory bandwidth, {_LEAST_SHARE:.0%} is the least "
            "expected: another program, power or heat slows it, and times will not compare with other runs"
        )
    if share > _MOST_SHARE:
        return (
            f"self-check: a copy runs at {share:.0%} of this GPU's described memory bandwidth: the description or the "
            "GPU's timer is wrong, and estimates and speed-of-light figures with it"
        )
    return ""


def others_note(processes: int) -> str:
    """`processes` that compute on the GPU, this one among them."""
    others = processes - 1
    if others < 1:
        return ""
    programs = "another program computes" if others == 1 else f"{others} other programs compute"
    return f"{programs} on this GPU: what it does meanwhile is in the times measured here"


def finals_notes(workload: str, finals: Sequence[Measurement]) -> list[str]:
    """Throttling and noise of a workload's finals. The fastest one's noise counts: it decides."""
    notes = []
    if any(m.state.throttled for m in finals):
        notes.append(f"power or heat held the clocks back during the finals of {workload}")
    best = min(finals, key=lambda m: m.us, default=None)
    if best is not None and (found := noise(best.samples_us)) > _NOISE:
        notes.append(f"the samples of {best.candidate} on {workload} spread by {found:.0%}, more than {_NOISE:.0%}")
    return notes


def noise(samples_us: Sequence[float]) -> float:
    """The quartiles' distance over the median; 0 for fewer than four samples."""
    if len(samples_us) < 4:
        return 0.0
    low, middle, high = quantiles(samples_us, n=4)
    return (high - low) / middle
