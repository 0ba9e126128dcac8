"""Chains of GEMMs in one Hopper kernel, every intermediate in shared memory."""

from templates.sm90_tower_b2b.family import Sm90Tower

FAMILY = Sm90Tower()
