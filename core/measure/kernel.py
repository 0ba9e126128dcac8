"""A generated kernel in a shared library, called through its C interface (templates/include/bolt/abi.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from core.measure.args import ERROR_NAMES, BoltArgs, args_of
from core.measure.measurement import Stage
from core.measure.tensors import Slot
from templates.epilogue import Epilogue, EpilogueOp
from templates.family import Candidate
from templates.workload import Workload


class KernelFailure(Exception):
    """A kernel can't be used; `stage` says where, the text why."""

    def __init__(self, stage: Stage, reason: str) -> None:
        self.stage = stage
        super().__init__(reason)


@cache
def _library(path: str) -> ctypes.CDLL:
    # RTLD_LOCAL, ctypes' default: equal template names in two libraries must not merge.
    return ctypes.CDLL(path)


def steps_left(kernel: Epilogue, workload: Epilogue) -> tuple[EpilogueOp, ...]:
    """The steps of a workload that are left for a separate pointwise kernel when this one only runs the first of them.

    Nothing is left to kernels of the whole chain. Raises KernelFailure when the kernel's steps are not the first ones.
    """
    if kernel.output != workload.output or kernel.ops != workload.ops[: len(kernel.ops)]:
        raise KernelFailure(Stage.REFUSED, f"built for the epilogue {kernel}, which {workload} does not begin with")
    return workload.ops[len(kernel.ops) :]


def _said(code: int) -> str:
    return ERROR_NAMES.get(code, f"error {code}")


class LoadedKernel:
    """One candidate, ready to be enqueued. Raises KernelFailure when it is not there or refuses the workload."""

    def __init__(self, candidate: Candidate, library: Path, workload: Workload, sm_count: int) -> None:
        name = candidate.kernel.name
        try:
            loaded = _library(str(library))
            self._check, self._workspace_size, self._run = (
                getattr(loaded, f"bolt_{entry}_{name}") for entry in ("check", "workspace", "run")
            )
        except (OSError, AttributeError) as error:
            raise KernelFailure(Stage.LOAD, " ".join(str(error).split())) from None
        pointer = ctypes.POINTER(BoltArgs)
        self._check.argtypes, self._check.restype = [pointer], ctypes.c_int
        self._workspace_size.argtypes, self._workspace_size.restype = [pointer], ctypes.c_size_t
        self._run.argtypes, self._run.restype = [pointer, ctypes.c_void_p], ctypes.c_int
        self.name = candidate.name
        self.rest = steps_left(candidate.kernel.epilogue, workload.epilogue)
        self._args: list[BoltArgs] = []
        self._template = args_of(workload, candidate.launch, sm_count)

    def bind(self, slots: Sequence[Slot], workspace: int, workspace_bytes: int) -> None:
        """Fills in the pointers, one argument block per slot."""
        self._args = []
        for slot in slots:
            args = BoltArgs.from_buffer_copy(self._template)
            args.a, args.b, args.bias = slot.a or None, slot.b or None, slot.bias or None
            args.source, args.d = slot.source or None, slot.d or None
            args.b1, args.bias1, args.source1 = slot.b1 or None, slot.bias1 or None, slot.source1 or None
            args.b2, args.bias2 = slot.b2 or None, slot.bias2 or None
            args.workspace, args.workspace_bytes = workspace or None, workspace_bytes
            self._args.append(args)

    def workspace_bytes(self, slot: Slot) -> int:
        """Scratch it asks for, with the slot's pointers in place. Raises KernelFailure(REFUSED) when it says no."""
        self.bind([slot], 0, 0)
        code = self._check(ctypes.byref(self._args[0]))
        if code:
            raise KernelFailure(Stage.REFUSED, _said(code))
        return int(self._workspace_size(ctypes.byref(self._args[0])))

    def launch(self, slot: int, stream: int) -> None:
        """Enqueues one run. Raises KernelFailure(LAUNCH)."""
        code: Any = self._run(ctypes.byref(self._args[slot]), stream)
        if code:
            raise KernelFailure(Stage.LAUNCH, _said(code))
