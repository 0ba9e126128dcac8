"""Where a persistent kernel may keep its intermediate: in registers (RF) or in shared memory (paper section 3.1.1).

RF asks every warp for whole rows of the intermediate, smem lets warps share them and costs a trip through shared
memory; the sizes that either can hold are the families' rules (CUTLASS example 13, README).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from core.fusion.plan import Region
from templates import families as all_families
from templates.family import Family
from templates.gpu import KNOWN_GPUS, GpuSpec
from templates.types import Residence
from templates.workload import Chain, Pair, TowerWorkload

_MANY = {2: "two", 3: "three"}
NAMES = {Residence.RF: "registers (RF)", Residence.SMEM: "shared memory (smem)"}


def no_pair(region: Region) -> str:
    return f"{region.id} ({region.kind}) has no intermediate to place: it is no pair of products in one kernel"


def refused(
    region: Region, residence: Residence, gpu: GpuSpec | None = None, families: Mapping[str, Family] | None = None
) -> str | None:
    """Why no kernel of the region keeps the intermediate there on the GPU, or on any GPU if none is given."""
    if not isinstance(region.workload, Pair):
        return no_pair(region)
    pair = replace(region.workload, residence=residence)
    said = [unserved(pair, spec, families) for spec in ((gpu,) if gpu else KNOWN_GPUS.values())]
    return None if None in said else f"{region.id} can't keep its intermediate in {NAMES[residence]}: {said[0]}"


def places(pair: Pair, gpu: GpuSpec | None = None) -> tuple[Residence, ...]:
    """Where a kernel for the pair can keep the intermediate on the GPU, or on any known GPU if none is given."""
    specs = (gpu,) if gpu else tuple(KNOWN_GPUS.values())
    wanted = [r for r in Residence if pair.residence in (None, r)]
    return tuple(r for r in wanted if any(unserved(replace(pair, residence=r), spec) is None for spec in specs))


def unserved(pair: Chain, gpu: GpuSpec, families: Mapping[str, Family] | None = None) -> str | None:
    """Why no family has a kernel for the pair on the GPU; None if one has. Of many reasons the commonest is told."""
    return _all_unserved(pair, gpu) if families is None else _unserved(pair, gpu, families)


@lru_cache(maxsize=512)
def _all_unserved(pair: Chain, gpu: GpuSpec) -> str | None:
    return _unserved(pair, gpu, all_families())


def _unserved(pair: Chain, gpu: GpuSpec, families: Mapping[str, Family]) -> str | None:
    said: Counter[str] = Counter()
    # Of equally common reasons that of the families made for this GPU: what they can't, older ones can't either.
    for family in sorted(families.values(), key=lambda f: -f.min_sm):
        kind = "tower" if isinstance(pair, TowerWorkload) else "b2b"
        if not family.min_sm <= gpu.sm <= family.max_sm or kind not in family.name:
            continue
        reason = family.refuses(pair, gpu)
        if reason is not None:
            said[f"{family.name}: {reason}"] += 1
            continue
        for kernel in family.kernels(pair, gpu):
            reason = family.illegal(kernel, pair, gpu)
            if reason is None:
                return None
            said[f"{family.name}: {reason}"] += 1
    return (
        said.most_common(1)[0][0]
        if said
        else f"no family runs {_MANY[len(pair.parts)]} products in one kernel on {gpu.name}"
    )
