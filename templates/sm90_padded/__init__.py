"""Odd depths on Hopper: operands filled up to whole 16-byte vectors first, then the cluster split-K kernel."""

from templates.sm90_padded.family import Sm90Padded

FAMILY = Sm90Padded()
