"""Back-to-back GEMM and conv -> 1x1 conv by mma.sync, over CUTLASS's example 13: sm75 and later."""

from templates.sm80_b2b.family import Sm80B2b

FAMILY = Sm80B2b()
