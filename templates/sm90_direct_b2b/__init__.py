"""Conv -> 1x1 conv on Hopper: the first one direct, the intermediate in shared memory."""

from templates.sm90_direct_b2b.family import Sm90DirectB2b

FAMILY = Sm90DirectB2b()
