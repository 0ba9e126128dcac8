"""Every tensor's copies in memory while a graph is lowered: which exist, and the step that makes a missing one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from core.errors import ExportError
from core.export import layout as L
from core.export.operations import (
    Axis,
    Operand,
    Operation,
    PackChannels,
    Pointwise,
    TiledTranspose,
    result_elements,
)
from core.export.placement import placements
from core.export.program import Buffer, OperatorStep, Port, Program, Slice, Space, Step
from core.fusion.values import native_dtype, stored_dtype
from core.graph.ir import Graph
from templates.types import DType

_TILE_FROM = 8  # extents below this leave most of a 32x32 tile empty: a plain gather is faster
MOST_ELEMENTS = 2**31 - 1  # the operator kernels count in 32 bits
_NUMPY = {
    DType.F16: np.float16, DType.F32: np.float32, DType.F64: np.float64, DType.I8: np.int8, DType.U8: np.uint8,
    DType.I32: np.int32, DType.I64: np.int64, DType.BOOL: np.bool_, DType.TF32: np.float32, DType.BF16: np.uint16,
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """One way a tensor may lie in memory. `channels`: the innermost extent is padded with zeros to this; 0 if not.
    `slice`: it is dense but for its rows, which are those of a wider matrix.
    """

    layout: L.Layout
    dtype: DType
    channels: int = 0
    slice: Slice | None = None


class Builder:
    """Collects buffers and steps. `dtype` is what activations are stored in (TF32 means float32 in memory)."""

    def __init__(self, graph: Graph, dtype: DType) -> None:
        self.graph = graph
        self.dtype = DType.F32 if dtype == DType.TF32 else dtype
        self._native = native_dtype(graph)
        self.buffers: list[Buffer] = []
        self.constants: dict[int, np.ndarray] = {}
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self._forms: dict[str, dict[Form, int]] = {}
        self._arrays: dict[tuple[object, ...], int] = {}
        self.inputs = tuple(self._port(name, Space.INPUT) for name in graph.inputs)
        self.outputs = tuple(self._port(name, Space.OUTPUT) for name in graph.outputs)
        self._written: set[int] = set()
        for port in self.inputs:
            self._forms[port.name] = {Form(L.row_major(port.type.shape), port.type.dtype): port.buffer}

    def _port(self, name: str, space: Space) -> Port:
        kind = self.graph.types[name]
        return Port(name, kind, self._buffer(kind.dtype, kind.size, space, name))

    def _buffer(self, dtype: DType, elements: int, space: Space, tensor: str) -> int:
        if elements > MOST_ELEMENTS:
            raise ExportError(f"the tensor {tensor!r} has {elements} elements", "export with a smaller --batch")
        self.buffers.append(Buffer(len(self.buffers), dtype, elements, space, tensor))
        return len(self.buffers) - 1

    def storage(self, tensor: str) -> DType:
        """The type the tensor is held in between steps."""
        return stored_dtype(self.graph.types[tensor].dtype, self._native, self.dtype)

    def layouts(self, tensor: str) -> list[L.Layout]:
        """Layouts the tensor already lies in, unpadded, the one it was made in first; none for a constant."""
        return [form.layout for form in self._forms.get(tensor, {}) if not form.channels]

    def need(self, tensor: str, layout: L.Layout, dtype: DType | None = None, channels: int = 0) -> int:
        """The buffer that holds the tensor in this form; a conversion step (or a packed constant) if there is none."""
        form = Form(layout, dtype or self.storage(tensor), channels)
        value = self.graph.constant(tensor)
        if value is not None:
            return self._packed_constant(tensor, value, form)
        forms = self._forms.get(tensor)
        if not forms:
            raise ExportError(f"the tensor {tensor!r} is read before anything makes it", "this is a bug in the plan")
        if form not in forms:
            source = self._closest(forms, form)
            target = self._buffer(form.dtype, _elements(form, self.graph.shape(tensor)), Space.ARENA, tensor)
            self._convert(tensor, source, forms[source], form, target)
            forms[form] = target
        return forms[form]

    def need_any(self, tensor: str, layout: L.Layout) -> int:
        """As `need`, for kernels that read any number type: takes the tensor as it is stored in this layout."""
        for form, index in self._forms.get(tensor, {}).items():
            if form.layout == layout and not form.channels and form.slice is None:
                return index
        return self.need(tensor, layout)

    def view(
        self, tensor: str, layout: L.Layout, steps: Sequence[tuple[int, int]], dtype: DType | None = None
    ) -> tuple[int, Slice | None]:
        """As `need`, for kernels that take strides: a slice is read where it lies if the walk `steps`, (extent, stride
        in dense memory) of each dimension, has strides in it too. `dtype` None: the kernel reads any number type.
        """
        for form, index in self._forms.get(tensor, {}).items():
            fits = form.layout == layout and not form.channels and dtype in (None, form.dtype)
            if fits and (form.slice is None or form.slice.walks(steps)):
                return index, form.slice
        return self.need(tensor, layout, dtype), None

    def result(self, tensor: str, layout: L.Layout, dtype: DType | None = None) -> int:
        """The buffer a step writes the tensor to.

        Without `dtype` the kernel can write any type, and an output of the library is written in place.
        """
        kind = self.graph.types[tensor]
        for port in self.outputs:
            fits = dtype in (None, kind.dtype) and layout == L.row_major(kind.shape)
            if port.name == tensor and fits and not self.graph.consumers(tensor) and port.buffer not in self._written:
                self._written.add(port.buffer)
                self._forms[tensor] = {Form(layout, kind.dtype): port.buffer}
                return port.buffer
        form = Form(layout, dtype or self.storage(tensor))
        index = self._buffer(form.dtype, kind.size, Space.ARENA, tensor)
        self._forms[tensor] = {form: index}
        return index

    def side_by_side(self, tensors: Sequence[tuple[str, L.Layout]], widths: Sequence[int], dtype: DType) -> int:
        """The buffer of a matrix in which each tensor has `widths` columns and, but for its rows, its layout."""
        pitch, first = sum(widths), 0
        rows = self.graph.types[tensors[0][0]].size // widths[0]
        joint = self._buffer(dtype, rows * pitch, Space.ARENA, tensors[0][0])
        for (tensor, layout), width in zip(tensors, widths, strict=True):
            self._forms[tensor] = {Form(layout, dtype, slice=Slice(first, width, pitch)): joint}
            first += width
        return joint

    def scratch(self, dtype: DType, elements: int, node: str) -> int:
        """A buffer for a result that nobody reads but the kernel writes."""
        return self._buffer(dtype, elements, Space.ARENA, f"{node}/unread")

    def alias(self, tensor: str, source: str, moved: Callable[[L.Layout], L.Layout | None]) -> bool:
        """Let the tensor be the source's memory under other layouts. False where no form of the source allows it."""
        found = {}
        for form, index in self._forms.get(source, {}).items():
            layout = moved(form.layout) if not form.channels else None
            if layout is not None:
                found[Form(layout, form.dtype, slice=form.slice)] = index
        if found:
            self._forms[tensor] = found
        return bool(found)

    def constant(self, array: np.ndarray, dtype: DType, tensor: str, *key: object) -> int:
        """A constant buffer holding the array, flat, in `dtype`; equal (tensor, key) share one."""
        full = (tensor, dtype, *key)
        if full not in self._arrays:
            index = self._buffer(dtype, array.size, Space.CONSTANT, tensor)
            self.constants[index] = self._cast(array.reshape(-1), dtype, tensor)
            self._arrays[full] = index
        return self._arrays[full]

    def _cast(self, array: np.ndarray, dtype: DType, tensor: str) -> np.ndarray:
        if dtype == DType.BF16:
            return to_bf16(array)
        if dtype == DType.F16 and array.dtype != np.float16:
            finite = np.isfinite(array)
            if np.abs(array, where=finite, out=np.zeros(array.shape)).max(initial=0) > 65504:
                self.notes.append(f"the constant {tensor!r} has values beyond half precision; they became +-65504")
                array = np.where(finite, np.clip(array, -65504, 65504), array)
        return np.ascontiguousarray(array).astype(_NUMPY[dtype])

    def _packed_constant(self, tensor: str, value: np.ndarray, form: Form) -> int:
        if form.channels:
            raise ExportError(f"the constant {tensor!r} is asked for with padded channels", "this is a bug")
        return self.constant(L.pack(value, form.layout), form.dtype, tensor, form.layout)

    def emit(self, nodes: Sequence[str], operation: Operation, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Append an operator step."""
        for number, index in enumerate(outputs):
            assert self.buffers[index].elements == result_elements(operation, number), (operation, self.buffers[index])
        self.steps.append(OperatorStep(tuple(nodes), operation, tuple(inputs), tuple(outputs)))

    def _closest(self, forms: dict[Form, int], wanted: Form) -> Form:
        """The cheapest form to convert from: the same layout first, then the same type, never a padded one."""
        usable = [f for f in forms if not f.channels]
        return min(usable, key=lambda f: (f.layout != wanted.layout, f.slice is not None, f.dtype != wanted.dtype))

    def _convert(self, tensor: str, source: Form, read: int, form: Form, write: int) -> None:
        if form.channels:
            self._pad_channels(tensor, source, read, form, write)
            return
        operation = conversion(source.layout, form.layout, source.slice)
        if operation is None:  # orders that share no factors meet in row-major
            between = self._buffer(form.dtype, form.layout.size, Space.ARENA, tensor)
            plain = L.row_major(self.graph.shape(tensor))
            first, second = conversion(source.layout, plain, source.slice), conversion(plain, form.layout)
            assert first is not None and second is not None
            self.emit((), first, (read,), (between,))
            self.emit((), second, (between,), (write,))
            return
        self.emit((), operation, (read,), (write,))

    def _pad_channels(self, tensor: str, source: Form, read: int, form: Form, write: int) -> None:
        n, c, *spatial = self.graph.shape(tensor)
        pixels = prod(spatial)
        pieces = L.dims(source.layout, (n, c, pixels))
        if pieces is None or source.slice is not None or any(len(p) > 1 for p in pieces):
            plain = Form(L.row_major(self.graph.shape(tensor)), source.dtype)
            read = self.need(tensor, plain.layout, plain.dtype)
            pieces = L.dims(plain.layout, (n, c, pixels))
        assert pieces is not None
        stride_n, stride_c, stride_pixel = (p[0].stride if p else 0 for p in pieces)
        pack = PackChannels(n, pixels, c, form.channels, (stride_n, stride_pixel, stride_c))
        self.emit((), pack, (read,), (write,))

    def finish(self) -> Program:
        """The program; outputs that no step wrote in place are converted into their buffers."""
        for port in self.outputs:
            if port.buffer in self._written:
                continue
            form = Form(L.row_major(port.type.shape), port.type.dtype)
            if port.name in self.graph.constants:
                read = self.need(port.name, form.layout, form.dtype)
                self._convert(port.name, form, read, form, port.buffer)
                continue
            forms = self._forms[port.name]
            source = self._closest(forms, form)
            self._convert(port.name, source, forms[source], form, port.buffer)
        return Program(
            tuple(self.buffers), self.constants, tuple(self.steps), self.inputs, self.outputs, self.dtype,
            tuple(dict.fromkeys(self.notes)), placements(self._forms, self.buffers),
        )  # fmt: skip


def _elements(form: Form, shape: Sequence[int]) -> int:
    return prod(shape) // shape[1] * form.channels if form.channels else form.layout.size


def to_bf16(array: np.ndarray) -> np.ndarray:
    """The bfloat16 bits (uint16) of an array, rounded to nearest even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def conversion(
    source: L.Layout, target: L.Layout, part: Slice | None = None
) -> Pointwise | TiledTranspose | None:  # fmt: skip
    """The operation that rewrites memory from one layout (of a slice) to the other; None when they share no factors."""
    cuts = [*L.cuts_of(source.extents), *L.cuts_of(target.extents), *(_row_cuts(source, part) if part else ())]
    read, write = L.refined(source, cuts), L.refined(target, cuts)
    if read is None or write is None:
        return None
    read_strides = L.Layout(*read).strides
    if part is not None:
        if not part.walks(zip(read[0], read_strides, strict=True)):
            return None
        extents, strides = merged(
            [write[0][f] for f in write[1]], [[part.stride(read_strides[f]) for f in write[1]]]
        )  # fmt: skip
        return Pointwise(tuple(extents), (Operand(tuple(strides[0]), part.first),), (), (0,))
    extents, strides = merged([write[0][f] for f in write[1]], [[read_strides[f] for f in write[1]]])
    contiguous = strides[0].index(1) if 1 in strides[0] else len(extents) - 1
    if contiguous != len(extents) - 1 and min(extents[contiguous], extents[-1]) >= _TILE_FROM:
        steps = [prod(extents[i + 1 :]) for i in range(len(extents))]
        axes = [Axis(*a) for a in zip(extents, strides[0], steps, strict=True)]
        batch = tuple(a for i, a in enumerate(axes) if i not in (contiguous, len(axes) - 1))
        return TiledTranspose(batch, axes[contiguous], axes[-1])
    return Pointwise(tuple(extents), (Operand(tuple(strides[0])),), (), (0,))


def _row_cuts(of: L.Layout, part: Slice) -> list[int]:
    """Where a factor runs over the end of a slice's rows, in elements of the tensor."""
    return [
        prod(of.extents[i + 1 :]) * (part.width // stride)
        for i, (extent, stride) in enumerate(zip(of.extents, of.strides, strict=True))
        if stride < part.width < stride * extent and part.width % stride == 0
    ]


def merged(extents: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The same walk over memory with as few extents as possible (at least one); one list of strides per operand."""
    kept = [i for i, e in enumerate(extents) if e != 1]
    out: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    for i in kept:
        if out and all(w[-1] == s[i] * extents[i] for w, s in zip(walks, strides, strict=True)):
            out[-1] *= extents[i]
            for w, s in zip(walks, strides, strict=True):
                w[-1] = s[i]
        else:
            out.append(extents[i])
            for w, s in zip(walks, strides, strict=True):
                w.append(s[i])
    return (out, walks) if out else ([1], [[0] for _ in strides])
