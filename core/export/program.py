"""The lowered model: buffers, constants and steps in order. Nothing of ONNX is left but names for the report."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from core.errors import ExportError
from core.export.operations import Operation, moves_only
from core.export.placement import Placed
from core.export.vendor import VendorGemm
from core.graph.ir import TensorType
from core.tuner.choice import Choice
from templates.family import Candidate
from templates.types import DType
from templates.workload import Workload


class Space(StrEnum):
    """Where a buffer lives: handed in by the caller, in the weights file, or in the arena of intermediates."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    ARENA = "arena"


@dataclass(frozen=True)
class Buffer:
    """A run of `elements`; its index in Program.buffers is its name everywhere. `tensor` is the model's name for it."""

    index: int
    dtype: DType
    elements: int
    space: Space
    tensor: str

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class Slice:
    """Columns of a wider matrix: what would be dense memory is cut into rows of `width` elements, which lie `pitch`
    elements apart, the first one from element `first` on.
    """

    first: int
    width: int
    pitch: int

    def stride(self, dense: int) -> int:
        """The step here that is the step `dense` in dense memory."""
        return dense if dense < self.width else dense // self.width * self.pitch

    def walks(self, steps: Iterable[tuple[int, int]]) -> bool:
        """Whether a walk of these (extent, dense stride) has strides here: none of them ends within another row."""
        return all(e == 1 or s * e <= self.width or s % self.width == 0 for e, s in steps)


@dataclass(frozen=True)
class TemplateStep:
    """A tuned kernel. Operands are buffer indices; `bias` and `source` are None where the epilogue takes none.

    Its rows lie `pitch` elements apart in `d`, from element `first` on; a pitch of 0 means densely packed ones.
    `slices`: operands (a, b, b1) that are columns of a wider matrix, by name.
    """

    nodes: tuple[str, ...]
    region: str
    workload: Workload
    choice: Choice
    a: int
    b: int
    d: int
    bias: int | None = None
    source: int | None = None
    vendor: VendorGemm | None = None  # runs instead of the candidate
    b1: int | None = None  # a chain's second operator
    bias1: int | None = None
    source1: int | None = None  # its last operator's
    b2: int | None = None  # its third
    bias2: int | None = None
    first: int = 0
    pitch: int = 0
    slices: tuple[tuple[str, Slice], ...] = ()

    @property
    def candidate(self) -> Candidate:
        if self.choice.candidate is None:
            raise ExportError(f"the choice for {self.workload.key} names no template kernel", "tune the model")
        return self.choice.candidate

    @property
    def reads(self) -> tuple[int, ...]:
        operands = (self.a, self.b, self.bias, self.source, self.b1, self.bias1, self.source1, self.b2, self.bias2)
        return tuple(i for i in operands if i is not None)

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.d,)


@dataclass(frozen=True)
class OperatorStep:
    """One of our own operator kernels. `nodes` is empty for a conversion that the layouts asked for."""

    nodes: tuple[str, ...]
    operation: Operation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        return self.inputs

    @property
    def writes(self) -> tuple[int, ...]:
        return self.outputs


Step = TemplateStep | OperatorStep


@dataclass(frozen=True)
class Port:
    """An input or output of the library: the model's name and type, and its buffer (row-major, the model's dtype)."""

    name: str
    type: TensorType
    buffer: int


@dataclass(frozen=True)
class Program:
    """Steps in execution order over `buffers`; `constants` holds the flat contents of the constant ones."""

    buffers: tuple[Buffer, ...]
    constants: dict[int, np.ndarray]
    steps: tuple[Step, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dtype: DType
    notes: tuple[str, ...] = field(default=())
    placed: tuple[Placed, ...] = ()

    @property
    def templates(self) -> Iterator[TemplateStep]:
        return (s for s in self.steps if isinstance(s, TemplateStep))

    def conversions(self) -> tuple[int, int]:
        """(steps, bytes read and written) spent on layout, type and padding conversions alone."""
        moving = [s for s in self.steps if isinstance(s, OperatorStep) and not s.nodes and moves_only(s.operation)]
        return len(moving), sum(self.buffers[i].nbytes for s in moving for i in (*s.reads, *s.writes))
