"""Which records no longer hold, and which contradict each other. Nothing is removed: it is shown, and not trusted."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.device import detect_gpu
from core.errors import DeviceError, ToolchainError
from core.measure.measurement import Measurement, Phase
from core.records.rows import Identity, Record
from core.records.store import Records

# Medians of the same kernel on GPUs of one model differ by a few per cent from card to card; what differs by more was
# measured under other conditions.
DISAGREE = 1.15


def identity_here() -> Identity | None:
    """What would be measured under on this machine; None without a GPU or a compiler."""
    from core.build.toolchain import find_toolchain

    try:
        gpu, toolchain = detect_gpu(), find_toolchain()
    except (DeviceError, ToolchainError):
        return None
    return Identity(gpu, toolchain.nvcc_version, toolchain.cutlass_version)


def stale(record: Record, records: Records, here: Identity | None) -> tuple[str, ...]:
    """Why the record is not trusted, each reason in words; empty if it is.

    A template's version counts everywhere. `here`, if given, is compared where the GPU is of the record's model:
    driver, CUDA, nvcc and CUTLASS must be the same. Vendor kernels are measured anew in all finals: only that counts.
    """
    reasons = []
    if record.candidate is not None:
        family, version = record.candidate.kernel.family, records.template_version(record.candidate.kernel.family)
        if version is None:
            reasons.append(f"template {family} is gone")
        elif version != record.family_version:
            reasons.append(f"template {family} is version {version} now, was {record.family_version}")
    identity = record.identity
    if here is not None and here.gpu.name == identity.gpu.name:
        pairs = (
            ("driver", identity.gpu.driver, here.gpu.driver), ("CUDA", identity.gpu.cuda, here.gpu.cuda),
            ("nvcc", identity.nvcc, here.nvcc), ("CUTLASS", identity.cutlass, here.cutlass),
        )  # fmt: skip
        reasons += [f"{what} is {now} here, was {was}" for what, was, now in pairs if was != now]
    return tuple(reasons)


@dataclass(frozen=True)
class Claim:
    """What one source says: the newest final of a kernel from there."""

    origin: str
    us: float
    driver: str
    taken: str


@dataclass(frozen=True)
class Conflict:
    """Sources that disagree about one kernel on one workload and GPU model; the fastest claim first."""

    workload: str
    candidate: str
    gpu: str
    claims: tuple[Claim, ...]

    @property
    def ratio(self) -> float:
        """Slowest over fastest."""
        return self.claims[-1].us / self.claims[0].us


def conflicts(records: Records, among: Iterable[Record] | None = None) -> list[Conflict]:
    """Kernels whose finals from different sources differ by more than DISAGREE, the worst first.

    A source is this user, a file that was imported, or the shipped records. Only records of one template version are
    compared; `among`: of these records only.
    """
    found: dict[tuple[str, str, str, int], dict[str, Claim]] = {}
    for record in records.all() if among is None else among:
        outcome = record.outcome
        if record.candidate is None or not isinstance(outcome, Measurement) or outcome.phase is not Phase.FINAL:
            continue
        gpu = record.identity.gpu
        key = (outcome.workload, outcome.candidate, gpu.name, record.family_version)
        claim = Claim(records.origin(record), outcome.us, gpu.driver, record.taken)
        claims = found.setdefault(key, {})
        earlier = claims.get(claim.origin)
        if earlier is None or claim.taken >= earlier.taken:
            claims[claim.origin] = claim
    made = [
        Conflict(workload, candidate, gpu, tuple(sorted(claims.values(), key=lambda c: (c.us, c.origin))))
        for (workload, candidate, gpu, _), claims in found.items()
        if len(claims) > 1
    ]
    return sorted((c for c in made if c.ratio > DISAGREE), key=lambda c: -c.ratio)
