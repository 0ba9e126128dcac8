"""Explicit windows for Conv, ConvTranspose and pools (ONNX operator specification, `auto_pad`)."""

from dataclasses import replace

from core.errors import ModelError
from core.graph.ir import Node
from core.graph.proto import MAX_ELEMENTS
from core.graph.walk import Walker

_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def explicit_window(node: Node, walker: Walker) -> Node:
    """`kernel_shape`, `strides`, `dilations` and `pads` present, `auto_pad` and `output_shape` resolved.

    Raises ModelError if they don't fit the input's rank.
    """
    shape = walker.types[node.inputs[0]].shape
    weighted = node.op in ("Conv", "ConvTranspose")
    spatial = len(shape) - 2
    attrs = {k: v for k, v in node.attrs.items() if k not in ("auto_pad", "output_shape")}
    kernel = tuple(attrs.get("kernel_shape") or (walker.types[node.inputs[1]].shape[2:] if weighted else ()))
    strides = tuple(attrs.get("strides") or (1,) * spatial)
    dilations = tuple(attrs.get("dilations") or (1,) * spatial)
    if spatial < 1 or not len(kernel) == len(strides) == len(dilations) == spatial:
        raise ModelError(f"node {node.name!r} ({node.op}) has a window that does not fit its input {list(shape)}")
    if min((*kernel, *strides, *dilations)) < 1:
        raise ModelError(f"node {node.name!r} ({node.op}) has a window extent, stride or dilation below 1")
    if max((*kernel, *strides, *dilations)) > MAX_ELEMENTS:  # kernels count positions in 32 bits
        raise ModelError(f"node {node.name!r} ({node.op}) has a window extent, stride or dilation above {MAX_ELEMENTS}")
    if weighted and kernel != tuple(walker.types[node.inputs[1]].shape[2:]):
        raise ModelError(f"node {node.name!r} ({node.op}) has a kernel_shape that is not its weight's")
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto not in _AUTO_PADS:
        raise ModelError(
            f"node {node.name!r} ({node.op}) has auto_pad {auto!r}, which is none of {', '.join(_AUTO_PADS)}"
        )
    pads = tuple(attrs.get("pads") or (0,) * (2 * spatial))
    if node.op == "ConvTranspose":
        extra = tuple(attrs.get("output_padding") or (0,) * spatial)
        pads, attrs["output_padding"] = _transposed_pads(node, shape[2:], kernel, strides, dilations, extra, pads, auto)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(shape[2:], kernel, strides, dilations, auto)
    elif auto == "VALID":
        pads = (0,) * (2 * spatial)
    if len(pads) != 2 * spatial:
        raise ModelError(f"node {node.name!r} ({node.op}) has {len(pads)} pads, its input needs {2 * spatial}")
    for i, extent in enumerate(shape[2:]):
        if extent + pads[i] + pads[i + spatial] > MAX_ELEMENTS:
            raise ModelError(f"node {node.name!r} ({node.op}) pads dimension {i + 2} beyond {MAX_ELEMENTS}")
    attrs |= {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if weighted:
        attrs["group"] = int(attrs.get("group", 1))
        _check_channels(node, walker, attrs["group"])
    return replace(node, attrs=attrs)


def _check_channels(node: Node, walker: Walker, group: int) -> None:
    """ONNX's shape inference leaves this out, and a runtime would only find it when it runs."""
    channels, weight = walker.types[node.inputs[0]].shape[1], walker.types[node.inputs[1]].shape
    read = weight[0] if node.op == "ConvTranspose" else weight[1] * group
    made = weight[1] * group if node.op == "ConvTranspose" else weight[0]
    if group < 1 or channels != read or channels % group or made % group:
        raise ModelError(
            f"node {node.name!r} ({node.op}) has an input of {channels} channels, its weight {list(weight)} and "
            f"{group} groups need {read}"
        )
    if len(node.inputs) > 2 and node.inputs[2] and walker.types[node.inputs[2]].shape != (made,):
        raise ModelError(f"node {node.name!r} ({node.op}) has a bias that is not a vector of its {made} channels")


def _halves(total: int, upper: bool) -> tuple[int, int]:
    """(begin, end): the odd one goes to the end for SAME_UPPER."""
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def _same_pads(
    extents: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], auto: str
) -> tuple[int, ...]:
    """Pads that make the output ceil(input / stride)."""
    pairs = []
    for extent, k, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        total = max(0, (-(-extent // stride) - 1) * stride + (k - 1) * dilation + 1 - extent)
        pairs.append(_halves(total, auto == "SAME_UPPER"))
    return (*(p[0] for p in pairs), *(p[1] for p in pairs))


def _transposed_pads(
    node: Node,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
    pads: tuple[int, ...],
    auto: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads and output padding that give `output_shape`, or input * stride for SAME_UPPER and SAME_LOWER."""
    wanted = node.attrs.get("output_shape")
    if not wanted and auto in ("NOTSET", "VALID"):
        return (pads if auto == "NOTSET" else (0,) * (2 * len(extents))), extra
    targets = tuple(wanted)[-len(extents) :] if wanted else tuple(e * s for e, s in zip(extents, strides, strict=True))
    pairs, added = [], []
    for extent, k, stride, dilation, more, target in zip(
        extents, kernel, strides, dilations, extra, targets, strict=True
    ):
        total = stride * (extent - 1) + more + (k - 1) * dilation + 1 - target
        pairs.append(_halves(max(total, 0), auto != "SAME_LOWER"))
        added.append(more - min(total, 0))
    return (*(p[0] for p in pairs), *(p[1] for p in pairs)), tuple(added)
