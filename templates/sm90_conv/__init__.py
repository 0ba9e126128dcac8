"""Implicit-GEMM convolution on Hopper: im2col TMA, wgmma, persistent pingpong and cooperative schedules."""

from templates.sm90_conv.family import Sm90Conv

FAMILY = Sm90Conv()
