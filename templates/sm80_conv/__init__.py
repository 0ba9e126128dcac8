"""NHWC forward convolution by mma.sync tensor cores (CUTLASS 2.x implicit GEMM), ungrouped, sm75 and later."""

from templates.sm80_conv.family import Sm80Conv

FAMILY = Sm80Conv()
