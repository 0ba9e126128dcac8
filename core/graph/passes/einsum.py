"""Einsum as Transpose, Reshape and MatMul: operands are joined from the left, two at a time.

Labels of a pair are of four sorts: in both and still wanted (batch), in both and not (summed over by the product), in
one only (rows or columns), in one only and not wanted (summed away first).
"""

from collections.abc import Sequence
from math import prod

from core.graph.passes.writer import Writer


def contract(w: Writer) -> bool:
    """Write the Einsum `w.node`. False for an equation that it does not read."""
    terms = _terms(w)
    if terms is None:
        return False
    inputs, output = terms
    operands = [_diagonal(w, t, labels) for t, labels in zip(w.node.inputs, inputs, strict=True)]
    tensor, labels = operands[0]
    for i, (other, theirs) in enumerate(operands[1:], 1):
        later = {c for _, more in operands[i + 1 :] for c in more} | set(output)
        tensor, labels = _joined(w, tensor, labels, other, theirs, later)
    tensor, labels = _summed(w, tensor, labels, set(output))
    w.finish("Transpose", tensor, perm=tuple(labels.index(c) for c in output))
    return True


def _terms(w: Writer) -> tuple[list[str], str] | None:
    """Labels of every operand and of the output, one letter a dimension; an ellipsis becomes digits."""
    equation = str(w.node.attrs["equation"]).replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(w.node.inputs):
        return None
    ranks = [len(w.shape(t)) - len(p.replace("...", "")) for t, p in zip(w.node.inputs, parts, strict=True)]
    widest = max((r for r, p in zip(ranks, parts, strict=True) if "..." in p), default=0)
    if widest > 10 or any(r != 0 for r, p in zip(ranks, parts, strict=True) if "..." not in p):
        return None
    digits = "0123456789"[:widest]
    inputs = [p.replace("...", digits[widest - r :]) for p, r in zip(parts, ranks, strict=True)]
    if arrow:
        output = right.replace("...", digits)
    else:
        joined = "".join(parts).replace("...", "")
        output = digits + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    return (inputs, output) if set(output) <= set("".join(inputs)) else None


def _diagonal(w: Writer, tensor: str, labels: str) -> tuple[str, str]:
    """A label that an operand has twice keeps its diagonal: of the two merged, every (extent + 1)th element."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = labels.index(label), labels.rindex(label)
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            extent = w.shape(tensor)[first]
            tensor = w.transpose(tensor, [*rest, first, second])
            tensor = w.reshape(tensor, [*w.shape(tensor)[:-2], extent * extent])
            tensor = w.op("Slice", tensor, w.ints([0]), w.ints([extent * extent]), w.ints([-1 % len(w.shape(tensor))]),
                          w.ints([extent + 1]))  # fmt: skip
            labels = "".join(labels[i] for i in rest) + label
    return tensor, labels


def _summed(w: Writer, tensor: str, labels: str, wanted: set[str]) -> tuple[str, str]:
    axes = [i for i, c in enumerate(labels) if c not in wanted]
    if axes:
        tensor = w.op("ReduceSum", tensor, w.ints(axes), keepdims=0)
    return tensor, "".join(c for c in labels if c in wanted)


def _joined(w: Writer, a: str, in_a: str, b: str, in_b: str, later: set[str]) -> tuple[str, str]:
    """The product of two operands over the labels that nobody wants later."""
    a, in_a = _summed(w, a, in_a, later | set(in_b))
    b, in_b = _summed(w, b, in_b, later | set(in_a))
    both = [c for c in in_a if c in in_b]
    summed = [c for c in both if c not in later]
    if any(w.shape(a)[in_a.index(c)] != w.shape(b)[in_b.index(c)] for c in both) or not summed:
        return _multiplied(w, a, in_a, b, in_b, later)
    batch = [c for c in both if c in later]
    rows, columns = [c for c in in_a if c not in in_b], [c for c in in_b if c not in in_a]
    extents = dict(zip(in_a, w.shape(a), strict=True)) | dict(zip(in_b, w.shape(b), strict=True))

    def size(labels: Sequence[str]) -> list[int]:
        return [extents[c] for c in labels]

    left = w.transpose(a, [in_a.index(c) for c in (*batch, *rows, *summed)])
    right = w.transpose(b, [in_b.index(c) for c in (*batch, *summed, *columns)])
    lead = [prod(size(batch))] if batch else []
    left = w.reshape(left, [*lead, prod(size(rows)), prod(size(summed))])
    right = w.reshape(right, [*lead, prod(size(summed)), prod(size(columns))])
    labels = [*batch, *rows, *columns]
    return w.reshape(w.op("MatMul", left, right), size(labels)), "".join(labels)


def _multiplied(w: Writer, a: str, in_a: str, b: str, in_b: str, later: set[str]) -> tuple[str, str]:
    """Elementwise with broadcasting, then sums."""
    labels = [*in_a, *(c for c in in_b if c not in in_a)]
    wide = []
    for tensor, own in ((a, in_a), (b, in_b)):
        order = [c for c in labels if c in own]
        turned = w.transpose(tensor, [own.index(c) for c in order])
        extents = dict(zip(order, w.shape(turned), strict=True))
        wide.append(w.reshape(turned, [extents.get(c, 1) for c in labels]))
    return _summed(w, w.op("Mul", *wide), "".join(labels), later)
