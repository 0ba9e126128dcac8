"""The fusion plan as data."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from templates.epilogue import Epilogue
from templates.types import DType, Residence
from templates.workload import Pair, Workload


class Kind(StrEnum):
    """What a region is. The first group is tuned; the second runs through our own operator kernels."""

    GEMM = "gemm"
    BATCHED_GEMM = "batched_gemm"
    CONV = "conv"
    DEPTHWISE_CONV = "depthwise_conv"
    B2B_GEMM = "b2b_gemm"
    B2B_CONV = "b2b_conv"
    DUAL_GEMM = "dual_gemm"
    PARALLEL = "parallel"
    ATTENTION = "attention"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    POOL = "pool"
    LAYOUT = "layout"
    OTHER = "other"

    @property
    def tuned(self) -> bool:
        one = (Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.DEPTHWISE_CONV, Kind.ATTENTION)
        return self in (*one, Kind.B2B_GEMM, Kind.B2B_CONV, Kind.PARALLEL)


@dataclass(frozen=True)
class Columns:
    """One of several products of the same A in one kernel: it makes `width` columns of the joint result.

    `node` is its Conv, Gemm or MatMul, `output` the tensor behind its epilogue. `bias` may be empty where others have
    one: then it is zero.
    """

    node: str
    b: str
    bias: str
    output: str
    width: int


@dataclass(frozen=True)
class Operands:
    """Tensor names of a tuned region, as the kernel sees them. Empty string: not there.

    `bias` is a constant or a tensor of N elements, whatever its shape. `source` has the output's shape and may be a
    constant. What a constant `b` holds: core.fusion.workload_of. `b1` and `bias1` are those of a chain's second
    operator, `b2` and `bias2` of its third, `source1` of its last.
    Attention: `a` queries, `b` keys, `b1` values, `source` the mask. Parallel products: `columns` in their order, `b`
    and `bias` those of the first.
    """

    a: str
    b: str
    bias: str = ""
    source: str = ""
    b1: str = ""
    bias1: str = ""
    source1: str = ""
    b2: str = ""
    bias2: str = ""
    columns: tuple[Columns, ...] = ()


@dataclass(frozen=True)
class Region:
    """Nodes that run as one kernel. `nodes` are names in topological order; `reason` is why it is this and no larger.

    `inputs` are the tensors it reads from outside, constants included; `outputs` those that others or the model read.
    Tuned kinds carry `workload` and `operands`; the others neither. A `pinned` region stays as it is until it is
    unpinned: planning again, other fusions and measured pairs leave it alone.
    """

    id: str
    kind: Kind
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str
    workload: Workload | None = None
    operands: Operands | None = None
    supported: bool = True  # False: no kernel exists, `reason` says so
    pinned: bool = False

    @property
    def epilogue(self) -> Epilogue:
        return self.workload.epilogue if self.workload else Epilogue()

    @property
    def residence(self) -> Residence | None:
        """Where a pair must keep its intermediate; None: where it is fastest."""
        return self.workload.residence if isinstance(self.workload, Pair) else None


@dataclass(frozen=True)
class LeftAlone:
    """A node outside every fused region, and the reason."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True)
class Refusal:
    """A fusion that was considered and not made: `node` could not join the region of `anchor`."""

    anchor: str
    node: str
    reason: str


@dataclass(frozen=True)
class FusionPlan:
    """Regions in execution order; every node of the graph is in exactly one.

    `forbidden`: groups of nodes, each in graph order; no region holds all nodes of one.
    """

    model: str
    regions: tuple[Region, ...]
    left_alone: tuple[LeftAlone, ...] = ()
    refusals: tuple[Refusal, ...] = field(default=())
    dtype: DType = DType.F16  # what it computes in
    forbidden: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def _owners(self) -> dict[str, Region]:
        return {node: region for region in self.regions for node in region.nodes}

    def region_of(self, node: str) -> Region | None:
        return self._owners.get(node)

    @property
    def supported(self) -> bool:
        return all(r.supported for r in self.regions)

    @property
    def workloads(self) -> dict[str, list[Region]]:
        """Workload key -> its regions: equal workloads are tuned once."""
        found: dict[str, list[Region]] = {}
        for region in self.regions:
            if region.workload is not None:
                found.setdefault(region.workload.key, []).append(region)
        return found
