"""Products and convolutions of few output tiles on Hopper: K cut over a cluster that adds up in shared memory."""

from templates.sm90_split.family import Sm90Split

FAMILY = Sm90Split()
