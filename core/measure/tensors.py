"""Operands of one workload in device memory: several sets, so that no run finds its inputs in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from core.errors import DeviceError
from core.measure.args import OperandBytes, operand_bytes, output_shape, reduction_length
from core.measure.reference import Comparison, Reference, refuse_unknown, tolerance
from core.measure.runtime import Runtime
from templates.attention import AttentionWorkload, MaskKind
from templates.types import DType
from templates.workload import Chain, Single, Workload

GUARD = 4096  # bytes before and after every buffer
GUARD_BYTE = 0xA5
POISON_BYTE = 0xFF  # all ones is a NaN in f16, bf16 and f32
MAX_SLOTS = 512
CHECKED_SLOTS = 2  # the first ones: every chain of launches passes over them
_ALIGN = 256
_SEED = 0x0B017
_PART_SEEDS, _SLOT_SEEDS = 8, 24  # at least the operands of a product, and of a chain of three
_QUERIES = 4.0  # largest element of Q


@dataclass(frozen=True)
class Slot:
    """Device pointers of one set of operands; 0 for an operand the workload lacks.

    A chain's second operator has `b1`, `bias1`, its third `b2`, `bias2`, its last `source1`; `intermediate` and
    `intermediate1` are room for what one hands the next when they run as kernels of their own, the same for every slot,
    as in a library that reuses memory.
    """

    a: int
    b: int
    bias: int
    source: int
    d: int
    b1: int = 0
    bias1: int = 0
    source1: int = 0
    intermediate: int = 0
    b2: int = 0
    bias2: int = 0
    intermediate1: int = 0

    @property
    def parts(self) -> tuple[Slot, ...]:
        """The operands of a chain's operators on their own."""
        first = Slot(self.a, self.b, self.bias, self.source, self.intermediate)
        if not self.b2:
            return first, Slot(self.intermediate, self.b1, self.bias1, self.source1, self.d)
        second = Slot(self.intermediate, self.b1, self.bias1, 0, self.intermediate1)
        return first, second, Slot(self.intermediate1, self.b2, self.bias2, self.source1, self.d)


def slot_count(nbytes: OperandBytes, l2_bytes: int, free_bytes: int) -> int:
    """Sets of operands so that together they take at least twice the L2; fewer where memory is short.

    At least one; two unless memory does not allow it. Half of the free memory is left for references and workspaces.
    """
    wanted = max(2, -(-2 * l2_bytes // max(nbytes.total, 1)))
    affordable = free_bytes // 2 // (nbytes.total + 4 * GUARD)
    return max(1, min(wanted, MAX_SLOTS, affordable))


class WrongResult(Exception):
    """A kernel ran and what it wrote is not right; the text is the reason for the user."""


class Tensors:
    """Slots filled with seeded random data, guarded outputs, and float32 references of the slots that are checked.

    A and source are uniform in [-1, 1]; B is uniform in [-1, 1] / sqrt(K) and the bias in [-1, 1], so that outputs
    stay O(1); so too for each operator of a chain. Attention: Q is uniform in [-4, 4], which spreads the scores enough
    for the softmax to matter, the other operands in [-1, 1]; of a boolean mask one in eight is 0. Raises DeviceError
    (GpuError) when the memory is not there, ValueError for a type or an epilogue that has no reference.
    """

    def __init__(self, workload: Workload, runtime: Runtime, reference: Reference, l2_bytes: int, stream: int) -> None:
        refuse_unknown(workload)  # before anything is taken
        self.workload = workload
        self._runtime, self._reference, self._stream = runtime, reference, stream
        self._nbytes = operand_bytes(workload)
        self._rows, self._columns = output_shape(workload)
        self.tolerance = tolerance(workload, reduction_length(workload))
        self.count = slot_count(self._nbytes, l2_bytes, runtime.free_bytes())
        self.checked = range(min(CHECKED_SLOTS, self.count))
        self._d_stride = _aligned(GUARD + self._nbytes.d + GUARD)
        self._blocks: list[int] = []
        self._kept: list[tuple[str, int, int]] = []  # what no kernel may write: name, start and bytes, guards included
        self._digests: dict[str, int] = {}
        self._workspace, self._workspace_bytes, self._workspace_used = 0, 0, 0
        try:
            self._allocate()
            self._fill()
        except DeviceError:
            self.free()
            raise

    def _allocate(self) -> None:
        n = self._nbytes

        def arena(name: str, size: int) -> tuple[int, int]:
            return (self._take_kept(name, _aligned(size) * self.count), _aligned(size)) if size else (0, 0)

        def at(block: tuple[int, int], index: int) -> int:
            return block[0] + index * block[1]

        a, b, bias, source = arena("A", n.a), arena("B", n.b), arena("bias", n.bias), arena("source", n.source)
        b1, bias1, source1 = arena("B1", n.b1), arena("bias1", n.bias1), arena("source1", n.source1)
        b2, bias2 = arena("B2", n.b2), arena("bias2", n.bias2)
        between = self.workload.parts[:-1] if isinstance(self.workload, Chain) else ()
        rooms = (*(self._take(operand_bytes(part).d) for part in between), 0, 0)
        self._d = self._take(self._d_stride * self.count)
        self.slots = [
            Slot(
                at(a, i), at(b, i), at(bias, i), at(source, i), self._d + i * self._d_stride + GUARD,
                at(b1, i), at(bias1, i), at(source1, i), rooms[0],
                at(b2, i), at(bias2, i), rooms[1],
            )
            for i in range(self.count)
        ]  # fmt: skip
        nbytes = 4 * self._rows * self._columns
        self._references = {i: self._take_kept(f"reference {i}", nbytes) for i in self.checked}

    def _take(self, nbytes: int) -> int:
        pointer = self._runtime.alloc(nbytes)
        self._blocks.append(pointer)
        return pointer

    def _take_kept(self, name: str, nbytes: int) -> int:
        """Memory that is checked for having been written, between guard zones."""
        whole = GUARD + _aligned(nbytes) + GUARD
        pointer = self._take(whole)
        self._kept.append((name, pointer, whole))
        return pointer + GUARD

    def _fill(self) -> None:
        chain: tuple[Single, ...] = self.workload.parts if isinstance(self.workload, Chain) else ()
        for i, slot in enumerate(self.slots):
            seed = _SEED + _SLOT_SEEDS * i
            if chain:
                for number, (part, own) in enumerate(zip(chain, slot.parts, strict=True)):
                    filled = replace(own, d=0) if number == 0 else replace(own, a=0)
                    self._fill_operands(part, filled, seed + _PART_SEEDS * number)
            elif isinstance(self.workload, AttentionWorkload):
                self._fill_attention(self.workload, slot, seed)
            else:
                assert not isinstance(self.workload, Chain)
                self._fill_operands(self.workload, slot, seed)
        self._runtime.memset(self._d, GUARD_BYTE, self._d_stride * self.count, self._stream)
        for i in self.checked:
            self._compute(i)
        self._runtime.synchronize()
        self._digests = self._digests_now()

    def _digests_now(self) -> dict[str, int]:
        return {name: self._reference.digest(base, size, self._stream) for name, base, size in self._kept}

    def _fill_operands(self, work: Single, slot: Slot, seed: int) -> None:
        nbytes, size = operand_bytes(work), work.dtype.itemsize
        filled = [
            (slot.a, work.dtype, nbytes.a // size, 1.0),
            (slot.b, work.dtype, nbytes.b // size, reduction_length(work) ** -0.5),
            (slot.bias, work.dtype, nbytes.bias // size, 1.0),
            (slot.source, work.epilogue.output, nbytes.source // work.epilogue.output.itemsize, 1.0),
        ]
        for k, (pointer, dtype, count, scale) in enumerate(filled):
            if pointer:
                self._reference.fill(pointer, dtype, count, seed + k, scale, self._stream)

    def _fill_attention(self, work: AttentionWorkload, slot: Slot, seed: int) -> None:
        n, size = self._nbytes, work.dtype.itemsize
        mask = work.dtype if work.mask is MaskKind.ADD else DType.BOOL
        for k, (pointer, dtype, count, scale) in enumerate([
            (slot.a, work.dtype, n.a // size, _QUERIES), (slot.b, work.dtype, n.b // size, 1.0),
            (slot.b1, work.dtype, n.b1 // size, 1.0), (slot.source, mask, n.source // mask.itemsize, 1.0),
        ]):  # fmt: skip
            if pointer:
                self._reference.fill(pointer, dtype, count, seed + k, scale, self._stream)

    def _compute(self, index: int) -> None:
        """The reference of a slot; intermediates go through memory, rounded to the operands' type."""
        work, slot, out = self.workload, self.slots[index], self._references[index]
        if isinstance(work, AttentionWorkload):
            self._reference.attend(work, slot.a, slot.b, slot.b1, slot.source, out, self._stream)
            return
        if not isinstance(work, Chain):
            self._reference.run(work, slot.a, slot.b, slot.bias, slot.source, out, self._stream)
            return
        parts: tuple[Single, ...] = work.parts
        between = [prod(output_shape(part)) for part in parts[:-1]]
        exact = self._runtime.alloc(4 * max(between))
        try:
            for part, own, elements in zip(parts, slot.parts, [*between, 0], strict=True):
                target = exact if elements else out
                self._reference.run(part, own.a, own.b, own.bias, own.source, target, self._stream)
                if elements:
                    self._reference.round(exact, own.d, work.dtype, elements, self._stream)
            self._runtime.synchronize()
        finally:
            self._runtime.free(exact)

    def reserve(self, nbytes: int) -> None:
        """Makes scratch of `nbytes` for everything that runs next. Captured graphs keep its address: call it first."""
        if nbytes <= self._workspace_bytes:
            return
        if self._workspace:
            self._runtime.synchronize()
            self._blocks.remove(self._workspace - GUARD)
            self._runtime.free(self._workspace - GUARD)
            self._workspace, self._workspace_bytes = 0, 0
        self._workspace = self._take(GUARD + _aligned(nbytes) + GUARD) + GUARD
        self._workspace_bytes = nbytes

    def workspace(self, nbytes: int) -> int:
        """The scratch, its first `nbytes` filled with 0xFF (no kernel may count on zeros), between guard zones.

        One scratch serves all candidates in turn; 0 bytes need none and give a null pointer.
        """
        self._workspace_used = nbytes
        if nbytes == 0:
            return 0
        self.reserve(nbytes)
        self._runtime.memset(self._workspace, POISON_BYTE, nbytes, self._stream)
        for zone in (self._workspace - GUARD, self._workspace + nbytes):
            self._runtime.memset(zone, GUARD_BYTE, GUARD, self._stream)
        return self._workspace

    def poison(self) -> None:
        """Fills the outputs that are checked with NaN."""
        for i in self.checked:
            self._runtime.memset(self.slots[i].d, POISON_BYTE, self._nbytes.d, self._stream)

    def verify(self, run: Callable[[], None]) -> Comparison:
        """Poisons the checked outputs, runs, and compares. Gives the worst slot's comparison.

        Raises WrongResult on a write outside of the output and the workspace, values beyond the tolerance, NaN or
        infinity, or elements not written; GpuError when the device reports an error.
        """
        self.poison()
        run()
        self._runtime.synchronize()
        self._check_guards()
        elements = self._rows * self._columns
        output = self.workload.epilogue.output
        worst = Comparison(0.0, 0.0, 0)
        for i in self.checked:
            found = self._reference.compare(self.slots[i].d, output, self._references[i], elements, self._stream)
            if found.non_finite:
                raise WrongResult(f"{found.non_finite} of {elements} outputs are NaN, infinite or not written")
            if not found.relative_l2 <= self.tolerance:
                raise WrongResult(
                    f"relative L2 error {found.relative_l2:.3g} against the reference, {self.tolerance:.3g} is allowed"
                )
            worst = max(worst, found, key=lambda c: c.relative_l2)
        return worst

    def _check_guards(self) -> None:
        """Raises WrongResult, with everything as it was again: the next kernel is not to be blamed."""
        end = GUARD + self._nbytes.d
        now = self._digests_now()
        written = [name for name in now if now[name] != self._digests[name]]
        around = self._reference.changed(self._d, self.count, self._d_stride, GUARD, end, GUARD_BYTE, self._stream)
        beyond = 0
        if self._workspace_used:
            beyond = self._reference.changed(
                self._workspace - GUARD, 1, self._workspace_used + 2 * GUARD, GUARD, self._workspace_used + GUARD,
                GUARD_BYTE, self._stream,
            )  # fmt: skip
        if written:
            self._fill()
            raise WrongResult(f"{' and '.join(written)} (or memory beside it) was overwritten, which is only read")
        if around or beyond:
            self._runtime.memset(self._d, GUARD_BYTE, self._d_stride * self.count, self._stream)
            where = "around the output" if around else "around the workspace"
            raise WrongResult(f"{around or beyond} bytes {where} were overwritten")

    def free(self) -> None:
        """Gives the memory back; the object is of no use after it."""
        self._runtime.synchronize()
        for pointer in self._blocks:
            self._runtime.free(pointer)
        self._blocks.clear()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
