"""Concatenations without a kernel of their own: their reader joins the parts, or their makers write them in place."""

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from math import prod

from core.export.operations import Concat, Operand, Pointwise
from core.export.program import OperatorStep, Program, Space, Step, TemplateStep
from core.measure.args import output_shape
from templates import families

_ACCESS = 16  # bytes: what the widest accesses and TMA want rows and starts aligned to
_MOST_BYTES = 2**31 - 1  # the 2.x kernels count an output's bytes in 32 bits


def merge_concats(program: Program) -> Program:
    """The program with every concatenation that a pointwise kernel can read in parts joined into that kernel.

    The kernel also writes the joined tensor where other steps read it; so it must be the first to read it.
    """
    steps: list[Step] = list(program.steps)
    position = 0
    while position < len(steps):
        reader = _reader(steps, position, program)
        if reader is None:
            position += 1
            continue
        steps[reader] = _merged(steps, position, reader, program)
        del steps[position]
    return replace(program, steps=tuple(steps))


def _reader(steps: list[Step], position: int, program: Program) -> int | None:
    """The position of the pointwise step to merge the concatenation at `position` into."""
    step = steps[position]
    if not isinstance(step, OperatorStep) or not isinstance(step.operation, Concat):
        return None
    joined = step.outputs[0]
    for i in range(position + 1, len(steps)):
        if joined in steps[i].reads:
            found = steps[i]
            fits = isinstance(found, OperatorStep) and isinstance(found.operation, Pointwise)
            return i if fits and _operand_of(found, joined) is not None else None
    return None


def _operand_of(step: Step, buffer: int) -> int | None:
    """The operand of a pointwise step that reads the whole buffer in the order of the result, exactly once."""
    assert isinstance(step, OperatorStep) and isinstance(step.operation, Pointwise)
    operation, first, found = step.operation, 0, None
    walk = tuple(prod(operation.extents[i + 1 :]) for i in range(len(operation.extents)))
    for number, operand in enumerate(operation.operands):
        if buffer in step.inputs[first : first + operand.inputs]:
            whole = operand.strides == walk and operand.offset == 0 and not operand.widths
            if found is not None or not whole:
                return None
            found = number
        first += operand.inputs
    return found


def _merged(steps: list[Step], position: int, reader: int, program: Program) -> OperatorStep:
    concat, into = steps[position], steps[reader]
    assert isinstance(concat, OperatorStep) and isinstance(into, OperatorStep)
    assert isinstance(concat.operation, Concat) and isinstance(into.operation, Pointwise)
    joined = concat.outputs[0]
    number = _operand_of(into, joined)
    assert number is not None
    operands = list(into.operation.operands)
    operands[number] = Operand(operands[number].strides, 0, concat.operation.widths)
    at = into.inputs.index(joined)
    results, outputs = into.operation.results, into.outputs
    kept = joined in {p.buffer for p in program.outputs}
    if kept or any(joined in s.reads for i, s in enumerate(steps) if i != reader):
        results, outputs = (*results, number), (*outputs, joined)
    return OperatorStep(
        (*concat.nodes, *into.nodes),
        replace(into.operation, operands=tuple(operands), results=results),
        (*into.inputs[:at], *concat.inputs, *into.inputs[at + 1 :]),
        outputs,
    )


def write_into_concats(program: Program) -> Program:
    """The program with every concatenation dropped whose parts are all made by tuned kernels, for it alone.

    Each of them then writes its columns of the joined tensor.
    """
    steps: list[Step] = list(program.steps)
    reads = Counter(i for step in steps for i in step.reads)
    for concat in program.steps:
        if not isinstance(concat, OperatorStep) or not isinstance(concat.operation, Concat):
            continue
        joined, operation = concat.outputs[0], concat.operation
        starts = accumulate(operation.widths, initial=0)
        moved: dict[int, Step] = {}
        for part, first, width in zip(concat.inputs, starts, operation.widths, strict=False):
            found = _maker(steps, part, program)
            if found is None or reads[part] != 1:
                break
            position, maker = found
            step = replace(maker, d=joined, first=first, pitch=sum(operation.widths))
            if not _writes_apart(step, (operation.outer, width), program):
                break
            moved[position] = step
        if len(moved) == len(concat.inputs):
            steps = [moved.get(i, step) for i, step in enumerate(steps) if step is not concat]
    return replace(program, steps=tuple(steps))


def _maker(steps: list[Step], part: int, program: Program) -> tuple[int, TemplateStep] | None:
    """The tuned step that writes the intermediate buffer, densely, and its position."""
    if program.buffers[part].space is not Space.ARENA:
        return None
    found = [i for i, step in enumerate(steps) if part in step.writes]
    step = steps[found[0]] if len(found) == 1 else None
    return (found[0], step) if isinstance(step, TemplateStep) and not step.pitch else None


def _writes_apart(step: TemplateStep, part: tuple[int, ...], program: Program) -> bool:
    """Whether the kernel can write its (rows, columns) `part` with the step's pitch."""
    buffer = program.buffers[step.d]
    size = buffer.dtype.itemsize
    return (
        step.vendor is None
        and families()[step.candidate.kernel.family].pitched
        and output_shape(step.workload) == part
        and buffer.dtype == step.workload.epilogue.output
        and step.first * size % _ACCESS == step.pitch * size % _ACCESS == 0
        and buffer.nbytes <= _MOST_BYTES
    )
