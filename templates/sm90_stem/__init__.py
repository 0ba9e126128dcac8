"""First layers on Hopper: few channels, raw input rows as wgmma operands, channels as M and pixels as N."""

from templates.sm90_stem.family import Sm90Stem

FAMILY = Sm90Stem()
