"""How a tuned region's operands lie: weights packed for the kernels, the rows and columns of A, the place of D."""

from math import prod

import numpy as np

from core.export import layout as L
from core.export.expressions import attribute
from core.export.forms import Builder
from core.export.program import Slice
from core.graph.ir import Node
from templates.types import MatrixLayout
from templates.workload import ConvWorkload, GemmWorkload

Slices = tuple[tuple[str, Slice], ...]


def rows_of_a(builder: Builder, tensor: str, layout: L.Layout, work: GemmWorkload, vendor: bool) -> tuple[int, Slices]:
    """The buffer of a row-major A of (M, K), read in place where it is a slice of wider rows and the kernel takes a
    leading dimension: ours do, the vendor's in a library is called with dense operands.
    """
    if vendor or work.batch > 1 or work.layout_a is not MatrixLayout.ROW:
        return builder.need(tensor, layout), ()
    index, part = builder.view(tensor, layout, ((work.m, work.k), (work.k, 1)), builder.storage(tensor))
    return index, (("a", part),) if part else ()


def krsc(weight: np.ndarray, work: ConvWorkload) -> np.ndarray:
    """ONNX's (K, C/groups, R, S) as (K, R, S, C/groups), channels padded with zeros to the workload's."""
    channels = work.c // work.groups
    krsc = weight.reshape(work.k, -1, work.r, work.s).transpose(0, 2, 3, 1)
    return np.pad(krsc, ((0, 0), (0, 0), (0, 0), (0, channels - krsc.shape[3])))


def nk(weight: np.ndarray, work: GemmWorkload) -> np.ndarray:
    """The filters of a 1x1 convolution as (K, C), channels padded with zeros to the workload's."""
    matrix = weight.reshape(work.n, -1)
    return np.pad(matrix, ((0, 0), (0, work.k - matrix.shape[1])))


def as_kn(weight: np.ndarray, anchor: Node, work: GemmWorkload) -> np.ndarray:
    """A constant B as (..., K, N)."""
    if anchor.op == "Gemm" and attribute(anchor, "transB", 0):
        weight = weight.T
    return weight.reshape(-1, work.k, work.n) if work.batch > 1 else weight.reshape(work.k, work.n)


def rows_and_columns(builder: Builder, a: str, work: GemmWorkload, foldable: bool) -> tuple[np.ndarray, L.Layout]:
    """(order of K in memory, layout of A): any layout whose last dimension is innermost serves a constant B.

    The order of K's elements is folded into B's rows; the order of the rows of A is carried over to D.
    """
    shape = builder.graph.shape(a)
    columns = np.arange(work.k)
    if foldable and work.batch == 1 and work.layout_a == MatrixLayout.ROW:
        for layout in builder.layouts(a):
            pieces = L.dims(layout, shape)
            if pieces is None:
                continue
            k = sorted(pieces[-1], key=lambda f: -f.stride)
            if prod(f.extent for f in k) == work.k and (not k or k[0].stride * k[0].extent == work.k):
                own = L.from_dims([pieces[-1]])
                return L.pack(columns, own), layout
    return columns, L.row_major(shape)


def output_layout(a: L.Layout, shape_a: tuple[int, ...], out: tuple[int, ...]) -> L.Layout:
    """D's rows in the order of A's, N innermost."""
    pieces = L.dims(a, shape_a)
    rows = L.from_dims(pieces[:-1]) if pieces is not None else L.row_major(shape_a[:-1])
    if rows.is_row_major:
        return L.row_major(out)
    extents, order = rows.extents, rows.order
    return L.layout((*extents, out[-1]), (*order, len(extents)))
