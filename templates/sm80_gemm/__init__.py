"""GEMM by mma.sync tensor cores (CUTLASS 2.x): every shape and alignment, sm75 and later."""

from templates.sm80_gemm.family import Sm80Gemm

FAMILY = Sm80Gemm()
