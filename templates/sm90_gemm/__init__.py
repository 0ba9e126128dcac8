"""GEMM on Hopper: TMA, wgmma, pingpong, cooperative and stream-K schedules."""

from templates.sm90_gemm.family import Sm90Gemm

FAMILY = Sm90Gemm()
