"""Number types and matrix layouts, named as the field names them."""

from enum import StrEnum


class DType(StrEnum):
    """An element type. The value is the short name used in kernel names, keys and files."""

    F16 = "f16"
    BF16 = "bf16"
    TF32 = "tf32"  # float32 in memory, 10-bit mantissa in the tensor core
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    U8 = "u8"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return _ITEMSIZE[self]

    @property
    def cutlass(self) -> str:
        """The C++ type in CUTLASS kernels."""
        return _CUTLASS[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.F16, DType.BF16, DType.TF32, DType.F32, DType.F64)


_ITEMSIZE = {
    DType.F16: 2, DType.BF16: 2, DType.TF32: 4, DType.F32: 4, DType.F64: 8,
    DType.I8: 1, DType.U8: 1, DType.I32: 4, DType.I64: 8, DType.BOOL: 1,
}  # fmt: skip
_CUTLASS = {
    DType.F16: "cutlass::half_t", DType.BF16: "cutlass::bfloat16_t", DType.TF32: "cutlass::tfloat32_t",
    DType.F32: "float", DType.F64: "double", DType.I8: "int8_t", DType.U8: "uint8_t",
    DType.I32: "int32_t", DType.I64: "int64_t", DType.BOOL: "bool",
}  # fmt: skip


class MatrixLayout(StrEnum):
    """Row-major (last index contiguous) or column-major. A weight stored (N, K) is a column-major B."""

    ROW = "row"
    COL = "col"


class Residence(StrEnum):
    """Where a kernel of two products keeps the intermediate (paper section 3.1.1): registers, or shared memory."""

    RF = "rf"
    SMEM = "smem"


def largest_alignment(*extents: int, dtype: DType = DType.F16) -> int:
    """The widest access, in elements, of at most 16 bytes that divides every extent (CUTLASS's alignment)."""
    widest = 16 // dtype.itemsize
    while widest > 1 and any(e % widest for e in extents):
        widest //= 2
    return widest
