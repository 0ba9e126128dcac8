"""The contract of a template family, and the values that pass through it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from templates.epilogue import Epilogue, parse_epilogue
from templates.gpu import GpuSpec
from templates.types import DType, MatrixLayout
from templates.workload import Workload


@dataclass(frozen=True)
class Kernel:
    """One template instance: everything that decides its machine code. Built once per GPU, reused across shapes.

    `params` are the family's compile-time parameters as sorted (name, value) pairs, `alignment` the access width in
    elements of the operands A, B and of the output.
    """

    family: str
    params: tuple[tuple[str, int | str], ...]
    epilogue: Epilogue
    dtype: DType = DType.F16
    accumulator: DType = DType.F32
    layout_a: MatrixLayout = MatrixLayout.ROW
    layout_b: MatrixLayout = MatrixLayout.COL
    alignment: tuple[int, int, int] = (8, 8, 8)
    stem: str = ""  # the family's procedural name of the parameters, e.g. "128x128x64_2x1_pingpong"

    def __getitem__(self, name: str) -> int | str:
        return dict(self.params)[name]

    def int(self, name: str) -> int:
        return int(self[name])

    @property
    def name(self) -> str:
        """Procedural name, a C identifier, unique to the kernel: family, types, parameters, alignment, epilogue."""
        layouts = "" if (self.layout_a, self.layout_b) == ("row", "col") else f"_{self.layout_a[0]}{self.layout_b[0]}"
        align = "x".join(map(str, self.alignment))
        return f"{self.family}_{self.dtype}{self.accumulator}_{self.stem}{layouts}_al{align}_{self.epilogue.ident}"


@dataclass(frozen=True)
class Launch:
    """What is chosen at run time for a kernel: no recompilation between two launches.

    raster: 0 heuristic, 1 along M, 2 along N. swizzle: log-free tile swizzle size. splits: split-K slices.
    pdl: programmatic dependent launch (sm90). variant: a family's own run-time choice (e.g. block geometry).
    """

    raster: int = 0
    swizzle: int = 1
    splits: int = 1
    pdl: bool = False
    variant: int = 0

    @property
    def name(self) -> str:
        parts = [f"r{self.raster}" * (self.raster != 0), f"z{self.swizzle}" * (self.swizzle != 1)]
        parts += [f"k{self.splits}" * (self.splits != 1), f"v{self.variant}" * (self.variant != 0), "pdl" * self.pdl]
        return "_".join(p for p in parts if p)


@dataclass(frozen=True)
class Candidate:
    """A kernel and a way to launch it: what is measured, and what may win."""

    kernel: Kernel
    launch: Launch = field(default_factory=Launch)

    @property
    def name(self) -> str:
        return "@".join(p for p in (self.kernel.name, self.launch.name) if p)


@dataclass(frozen=True)
class Score:
    """A rule's opinion of a candidate. `us` is an ESTIMATE for ranking only; `why` says it in words for the user."""

    us: float
    why: str


class Family(Protocol):
    """One folder under templates/. All methods are pure: no GPU, no compiler, no files.

    A reason is a short sentence for the user ("K = 46 is not a multiple of 8"); None means no objection.
    """

    name: str
    version: int  # raised when the source template changes in a way that changes the machine code
    min_sm: int
    max_sm: int  # inclusive
    pitched: bool  # D's rows may lie further apart than they are long (abi.h, ldd): kernels write into a concatenation

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        """Why this family has nothing for the workload on this GPU, or None. A pair's `residence` is part of the
        workload: kernels that keep the intermediate elsewhere are none for it.
        """
        ...

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        """The whole parameter space for the workload's types, layouts, alignment and epilogue, legal or not."""
        ...

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        """Why the kernel can't run the workload on the GPU (shared memory, alignment, tile against shape), or None."""
        ...

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        """The run-time choices worth trying, the most promising first."""
        ...

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        """Estimated time by the family's ranking rules; each rule names the guideline it comes from."""
        ...

    def source(self, kernel: Kernel) -> str:
        """C++/CUDA of the kernel in a namespace of its own, with its extern "C" entry points (include/bolt/abi.h)."""
        ...

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        """nvcc flags beyond the common ones: -gencode and defines. Kernels with equal flags may share a file."""
        ...

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        """(first in a file, each further one): rough nvcc seconds, to plan batches and the ETA."""
        ...


def candidate_to_dict(candidate: Candidate) -> dict[str, Any]:
    """Plain JSON values; `candidate_from_dict` reads them back."""
    kernel, launch = candidate.kernel, candidate.launch
    return {
        "family": kernel.family,
        "params": dict(kernel.params),
        "epilogue": str(kernel.epilogue),
        "dtype": str(kernel.dtype),
        "accumulator": str(kernel.accumulator),
        "layout_a": str(kernel.layout_a),
        "layout_b": str(kernel.layout_b),
        "alignment": list(kernel.alignment),
        "stem": kernel.stem,
        "launch": asdict(launch),
    }


def candidate_from_dict(data: Mapping[str, Any]) -> Candidate:
    """Raises KeyError, TypeError or ValueError on data that `candidate_to_dict` did not write."""
    a, b, d = data["alignment"]
    kernel = Kernel(
        family=data["family"],
        params=tuple(sorted(data["params"].items())),
        epilogue=parse_epilogue(data["epilogue"]),
        dtype=DType(data["dtype"]),
        accumulator=DType(data["accumulator"]),
        layout_a=MatrixLayout(data["layout_a"]),
        layout_b=MatrixLayout(data["layout_b"]),
        alignment=(a, b, d),
        stem=data["stem"],
    )
    return Candidate(kernel, Launch(**data["launch"]))
