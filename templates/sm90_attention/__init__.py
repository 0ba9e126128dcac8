"""Fused attention on Hopper: TMA and wgmma, warp-specialised and persistent."""

from templates.sm90_attention.family import Sm90Attention

FAMILY = Sm90Attention()
