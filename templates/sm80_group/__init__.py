"""Grouped 1x1 convolution as one batched GEMM by mma.sync tensor cores, sm75 and later."""

from templates.sm80_group.family import Sm80Group

FAMILY = Sm80Group()
