"""Direct convolution on Hopper: stride 1, TMA halo tiles, wgmma with channels as M and pixels as N."""

from templates.sm90_direct.family import Sm90Direct

FAMILY = Sm90Direct()
