"""Fused attention by mma.sync: any GPU from sm75 on, any width, length and alignment."""

from templates.sm80_attention.family import Sm80Attention

FAMILY = Sm80Attention()
