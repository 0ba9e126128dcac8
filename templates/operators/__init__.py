"""CUDA of every operator that is no tuned template: header-only kernels over compile-time shapes.

Not a family: nothing here is searched. The exporter emits, for each step, a struct of the step's constants and a call
of one function of these headers; core.export.kernels knows which.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
HEADERS = tuple(sorted(p.name for p in FOLDER.glob("*.cuh")))
