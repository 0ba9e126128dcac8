"""The argument block against the C header, and the strides it is filled with."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from core.build.toolchain import find_toolchain
from core.measure import reference
from core.measure.args import BoltArgs, args_of, operand_bytes, output_shape, reduction_length
from core.paths import INCLUDE, ROOT
from templates.attention import AttentionWorkload, MaskKind, heads_inside
from templates.epilogue import parse_epilogue
from templates.family import Launch
from templates.types import DType, MatrixLayout
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload

STRUCTURES = {
    "bolt_args": BoltArgs,
    "bolt_ref_problem": reference.RefProblem,
    "bolt_ref_ops": reference.RefOps,
    "bolt_ref_op": reference.RefOp,
    "bolt_ref_attention": reference.RefAttention,
    "bolt_ref_result": reference.RefResult,
}


def test_structures_lie_in_memory_as_in_c(tmp_path: Path) -> None:
    """Offset and size of every field, as the host compiler sees the headers."""
    lines = [
        f'printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));'
        for name, structure in STRUCTURES.items()
        for field, *_ in structure._fields_
    ]
    lines += [f'printf("{name} - %zu 0\\n", sizeof({name}));' for name in STRUCTURES]
    source = tmp_path / "layout.cpp"
    source.write_text(
        '#include <cstddef>\n#include <cstdio>\n#include "bolt/abi.h"\n#include "reference.h"\n'
        f"int main() {{\n{chr(10).join(lines)}\n}}\n"
    )
    toolchain = find_toolchain()
    cuda = toolchain.nvcc.resolve().parent.parent / "include"
    includes = [f"-I{INCLUDE}", f"-I{cuda}", f"-I{ROOT / 'core' / 'measure'}"]
    program = tmp_path / "layout"
    subprocess.run([str(toolchain.host_compiler), *includes, str(source), "-o", str(program)], check=True, timeout=60)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=10).stdout
    for line in said.splitlines():
        name, field, offset, size = line.split()
        if field == "-":
            assert ctypes.sizeof(STRUCTURES[name]) == int(offset), name
        else:
            found = getattr(STRUCTURES[name], field)
            assert (found.offset, found.size) == (int(offset), int(size)), (name, field)


def test_op_codes_are_those_of_the_header() -> None:
    text = (ROOT / "core" / "measure" / "epilogue_ops.h").read_text()
    for name, code in reference.OP_CODES.items():
        assert f"BOLT_REF_{name.upper()} = {code}," in text
    assert f"BOLT_REF_MAX_OPS {reference.MAX_OPS}\n" in text


@pytest.mark.parametrize(
    ("layout_a", "layout_b", "lda", "ldb"),
    [("row", "col", 40, 40), ("row", "row", 40, 24), ("col", "col", 16, 40), ("col", "row", 16, 24)],
)
def test_gemm_leading_dimensions(layout_a: str, layout_b: str, lda: int, ldb: int) -> None:
    gemm = GemmWorkload(16, 24, 40, layout_a=MatrixLayout(layout_a), layout_b=MatrixLayout(layout_b))
    args = args_of(gemm, Launch(), 132)
    assert (args.m, args.n, args.k, args.batch) == (16, 24, 40, 1)
    assert (args.lda, args.ldb, args.ldd, args.ldsource) == (lda, ldb, 24, 0)
    assert (args.stride_a, args.stride_b, args.stride_d, args.stride_source) == (640, 960, 384, 0)
    assert args.a is None and args.workspace is None and args.workspace_bytes == 0 and args.sm_count == 132


def test_a_shared_b_and_a_source() -> None:
    gemm = GemmWorkload(16, 24, 40, batch=3, shared_b=True, epilogue=parse_epilogue("bias+add"))
    args = args_of(gemm, Launch(), 1)
    assert (args.batch, args.stride_b, args.ldsource, args.stride_source) == (3, 0, 24, 384)
    assert operand_bytes(gemm).b == 24 * 40 * 2
    assert operand_bytes(gemm).source == operand_bytes(gemm).d == 3 * 16 * 24 * 2
    assert operand_bytes(gemm).bias == 48


def test_conv_fields_and_launch() -> None:
    conv = ConvWorkload(2, 17, 19, 24, 16, 3, 5, (1, 2, 3, 4), (2, 1), (1, 2), 4, epilogue=parse_epilogue("bias->f32"))
    args = args_of(conv, Launch(raster=2, swizzle=4, splits=3, pdl=True, variant=7), 8)
    assert (args.cn, args.h, args.w, args.c, args.cout, args.r, args.s) == (2, 17, 19, 24, 16, 3, 5)
    assert (args.p, args.q) == (conv.p, conv.q) == (10, 17)
    assert (args.pad_top, args.pad_left, args.pad_bottom, args.pad_right) == (1, 2, 3, 4)
    assert (args.stride_h, args.stride_w, args.dilation_h, args.dilation_w, args.groups) == (2, 1, 1, 2, 4)
    assert (args.raster, args.swizzle, args.splits, args.pdl, args.variant) == (2, 4, 3, 1, 7)
    assert (args.m, args.batch, args.lda, args.stride_d) == (0, 1, 0, 0)
    found = operand_bytes(conv)
    assert found.a == 2 * 17 * 19 * 24 * 2 and found.b == 16 * 3 * 5 * 6 * 2 and found.bias == 32
    assert found.d == 2 * 10 * 17 * 16 * 4 and found.source == 0
    assert output_shape(conv) == (2 * 10 * 17, 16) and reduction_length(conv) == 3 * 5 * 6


def test_problem_leaves_strides_to_the_reference() -> None:
    gemm = GemmWorkload(16, 24, 40, 2, DType.BF16, layout_a=MatrixLayout.COL, layout_b=MatrixLayout.ROW, shared_b=True)
    problem = reference.problem_of(gemm)
    assert (problem.is_conv, problem.dtype, problem.out_dtype) == (0, 1, 0)
    assert (problem.m, problem.n, problem.k, problem.batch) == (16, 24, 40, 2)
    assert (problem.a_col, problem.b_col, problem.shared_b) == (1, 0, 1)
    with pytest.raises(ValueError, match="i8"):
        reference.problem_of(GemmWorkload(1, 1, 1, dtype=DType.I8))


def test_a_pair_has_the_first_operators_fields_and_the_second_ones() -> None:
    conv = ConvWorkload(2, 9, 7, 16, 24, 3, 3, (1, 1, 1, 1), (2, 2), epilogue=parse_epilogue("bias+relu"))
    pair = B2bConvWorkload(conv, 40, parse_epilogue("bias+add"))
    args = args_of(pair, Launch(pdl=True), 132)
    assert (args.cn, args.c, args.cout, args.p, args.q) == (2, 16, 24, 5, 4)
    assert (args.n1, args.ldb1, args.ldd, args.ldsource1, args.pdl) == (40, 24, 40, 40, 1)
    assert output_shape(pair) == (40, 40) and reduction_length(pair) == 24
    found = operand_bytes(pair)
    assert (found.b, found.bias, found.source) == (24 * 9 * 16 * 2, 48, 0)
    assert (found.b1, found.bias1, found.source1, found.d) == (40 * 24 * 2, 80, 3200, 3200)

    gemm = B2bGemmWorkload(GemmWorkload(100, 64, 32, epilogue=parse_epilogue("bias")), 8)
    args = args_of(gemm, Launch(), 1)
    assert (args.m, args.n, args.k, args.lda, args.ldb, args.n1, args.ldb1) == (100, 64, 32, 32, 32, 8, 64)
    assert (args.ldd, args.stride_d, args.ldsource1) == (8, 0, 0)


def test_attention_reads_views_of_one_projection() -> None:
    """Queries, keys and values interleaved in one tensor of (batch, row, 3, head, element)."""
    packed = (40 * 3 * 256, 64, 3 * 256)
    work = AttentionWorkload(
        2, 4, 2, 40, 30, 64, 48, 0.125, packed, packed, packed, heads_inside(4, 40, 48), causal=True,
        mask=MaskKind.KEEP, mask_strides=(0, 0, 30),
    )  # fmt: skip
    args = args_of(work, Launch(pdl=True), 132)
    assert (args.batch, args.heads, args.kv_heads, args.q_length, args.kv_length) == (2, 4, 2, 40, 30)
    assert (args.head_dim, args.value_dim, args.scale, args.pdl) == (64, 48, 0.125, 1)
    assert (args.q_batch, args.q_head, args.q_row) == (args.v_batch, args.v_head, args.v_row) == packed
    assert (args.out_batch, args.out_head, args.out_row) == (7680, 48, 192)
    assert (args.mask_batch, args.mask_head, args.mask_row) == (0, 0, 30)
    found = operand_bytes(work)
    assert found.a == 2 * (packed[0] + 3 * 64 + 39 * packed[2] + 64)
    assert found.b1 == 2 * (packed[0] + 64 + 29 * packed[2] + 48)
    assert found.source == 39 * 30 + 30 and found.bias == 0
    assert output_shape(work) == (2 * 4 * 40, 48) and found.d == 2 * 4 * 40 * 48 * 2
    problem = reference.attention_of(work)
    assert list(problem.out) == [7680, 48, 192] and (problem.mask_kind, problem.causal) == (2, 1)
