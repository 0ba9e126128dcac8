"""Back-to-back GEMM and conv -> 1x1 conv on Hopper: TMA, wgmma, the intermediate in registers."""

from templates.sm90_b2b.family import Sm90B2b

FAMILY = Sm90B2b()
