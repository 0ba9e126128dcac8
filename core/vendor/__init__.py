"""cuBLASLt and cuDNN, measured beside our candidates and never assumed.

`peers` gives what a vendor library can run for a workload; the measurer verifies and times each like any candidate.
A library that is absent gives no peer and a line that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isfinite, isqrt
from typing import TYPE_CHECKING

from templates.attention import AttentionWorkload
from templates.epilogue import EpilogueOp
from templates.workload import Chain, ConvWorkload, GemmWorkload, Workload

if TYPE_CHECKING:
    from core.measure.reference import Reference
    from core.measure.runtime import Runtime
    from core.measure.tensors import Slot

WORKSPACE_BYTES = 64 << 20
_IMAGES = (32, 64, 16, 8, 4, 2, 1)  # of a 1x1 convolution that became a product, the usual batch first
_PART_FINALISTS = 2  # algorithms of each operator of a chain, every combination of which is measured as a chain


class VendorError(Exception):
    """A vendor call failed; the text is one line."""


class VendorAbsent(VendorError):
    """The library is not on this machine: the same for every workload."""


@dataclass(frozen=True)
class Peer:
    """One algorithm of a vendor library. `source` is the library and version, `detail` the algorithm in words.

    `launch(stream, slot)` enqueues one run over an operand set, and may be captured. Raises VendorError.
    """

    source: str
    detail: str
    launch: Callable[[int, int], None]


@dataclass(frozen=True)
class VendorContext:
    """What a vendor library works with: the device, the operands, a workspace, and our kernel for unfused steps.

    `time(launch)` gives microseconds of an algorithm in a graph of its own, infinite if it does not run: the choice
    among the algorithms of a pair's operators before they are measured as chains.
    """

    workload: Workload
    runtime: Runtime
    reference: Reference
    slots: Sequence[Slot]
    stream: int
    workspace: int
    time: Callable[[Callable[[int, int], None]], float] = lambda launch: 0.0

    def rest(self, steps: Sequence[EpilogueOp], stream: int, slot: int) -> None:
        """Runs the steps the library did not fuse, as one elementwise kernel on D."""
        from core.measure.args import output_shape

        rows, columns = output_shape(self.workload)
        at = self.slots[slot]
        self.reference.elementwise(
            at.d, self.workload.epilogue.output, at.bias, self.workload.dtype, at.source, rows, columns, steps, stream
        )


@dataclass
class Peers:
    """What there is to compare with, and why not, where there is nothing."""

    found: list[Peer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def peers(context: VendorContext) -> Peers:
    """Every algorithm the vendor's own heuristics propose for the workload. Never raises for an absent library."""
    from core.vendor import cublaslt, cudnn, cudnn_attention

    if isinstance(context.workload, Chain):
        return _chain_peers(context, context.workload)
    found = Peers()
    image = as_convolution(context.workload)
    libraries = [("cuBLASLt", cublaslt.peers, context)] if isinstance(context.workload, GemmWorkload) else []
    if isinstance(context.workload, AttentionWorkload):
        libraries.append(("cuDNN", cudnn_attention.peers, context))
    if image is not None:
        libraries.append(("cuDNN", cudnn.peers, replace(context, workload=image)))
    for name, ask, asked in libraries:
        try:
            found.found += ask(asked)
        except VendorAbsent as error:
            found.notes.append(f"{name} not compared: {error}")
        except VendorError as error:
            found.notes.append(f"{name} not compared on {context.workload.key}: {error}")
    return found


def as_convolution(workload: Workload) -> ConvWorkload | None:
    """The convolution that cuDNN is asked for: the workload itself, or the 1x1 one of stride 1 that a product may be.

    The planner makes products of such convolutions, and their images can't be told from it. A product is taken for one
    when its rows are up to 64 images, a power of two, of a square whose side is not: 7, 14, 28, 56, 112, but also 10,
    20, 40. Rows of 2^n, a batch of tokens as often as pixels, are left to cuBLASLt.
    """
    if isinstance(workload, ConvWorkload):
        return workload
    if not isinstance(workload, GemmWorkload) or workload.batch > 1 or workload.shared_b:
        return None
    if (workload.layout_a, workload.layout_b) != ("row", "col"):
        return None
    for images in _IMAGES:
        side = isqrt(workload.m // images)
        if side * side * images == workload.m and side > 2 and side & (side - 1):
            return ConvWorkload(
                images, side, side, workload.k, workload.n, 1, 1, dtype=workload.dtype,
                accumulator=workload.accumulator, epilogue=workload.epilogue,
            )  # fmt: skip
    return None


def prepare(workload: Workload) -> bool:
    """Does one step of what `peers` needs beside operands, a cuDNN plan. False when nothing is left.

    Never raises for a library that is absent or refuses: `peers` says so.
    """
    from core.vendor import cudnn

    if isinstance(workload, Chain):
        return any(prepare(part) for part in workload.parts)
    image = as_convolution(workload)
    try:
        return image is not None and cudnn.prepare(image)
    except VendorError:
        return False


def _chain_peers(context: VendorContext, chain: Chain) -> Peers:
    """Kernels one after the other, intermediates in memory: every combination of each operator's fastest."""
    fastest: list[list[Peer]] = []
    parts: tuple[Workload, ...] = chain.parts
    for index, part in enumerate(parts):
        own = replace(context, workload=part, slots=[slot.parts[index] for slot in context.slots])
        found = peers(own)
        timed = sorted(((context.time(p.launch), p) for p in found.found), key=lambda t: t[0])
        able = [p for us, p in timed if isfinite(us)]
        if not able:
            return Peers(
                notes=found.notes or [f"no vendor algorithm runs {part.key}, so none is compared with the chain"]
            )
        fastest.append(able[:_PART_FINALISTS])
    return Peers([_chained(each) for each in product(*fastest)])


def _chained(each: Sequence[Peer]) -> Peer:
    def launch(stream: int, slot: int) -> None:
        for peer in each:
            peer.launch(stream, slot)

    return Peer(" + ".join(p.source for p in each), " | ".join(p.detail for p in each), launch)


def described(fused: str, rest: Sequence[EpilogueOp]) -> str:
    """The detail's ending: what the library fused and what runs as a kernel of its own."""
    separate = "+".join(map(str, rest))
    return f"fused {fused}; separate {separate}" if separate else f"fused {fused}"
