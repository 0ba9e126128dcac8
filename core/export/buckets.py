"""A library of several batch sizes: which inputs and outputs grow with the batch, and by how many rows a sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import ExportError

if TYPE_CHECKING:
    from core.export.emit import Part
    from core.export.program import Port


@dataclass(frozen=True)
class Buckets:
    """`batches` in ascending order. `input_rows` and `output_rows`: extent of the first dimension for each sample of
    the batch, 0 for an input that does not grow with it."""

    batches: tuple[int, ...]
    input_rows: tuple[int, ...]
    output_rows: tuple[int, ...]

    def sample_bytes(self, ports: Sequence[Mapping[str, Any]], rows: Sequence[int]) -> list[int]:
        """Bytes of one sample of each port (as the templates know the largest bucket's); 0 for one that stays."""
        return [p["bytes"] // self.batches[-1] if r else 0 for p, r in zip(ports, rows, strict=True)]


def buckets(parts: "Sequence[Part]") -> Buckets | None:
    """What is common to the parts of a library; None if it has one only.

    Raises ExportError if the parts differ in more than the batch, or an output does not grow with it: padding would
    change its value.
    """
    if len(parts) < 2:
        return None
    batches = tuple(part.batch for part in parts)
    inputs = _rows("input", batches, [part.program.inputs for part in parts])
    outputs = _rows("output", batches, [part.program.outputs for part in parts])
    for port, rows in zip(parts[0].program.outputs, outputs, strict=True):
        if not rows:
            raise ExportError(
                f"output {port.name!r} does not grow with the batch, so a batch can't be padded",
                "export each batch size on its own",
            )
    if not any(inputs):
        raise ExportError("no input grows with the batch", "export the model without a list of batch sizes")
    return Buckets(batches, inputs, outputs)


def _rows(side: str, batches: Sequence[int], ports: "Sequence[tuple[Port, ...]]") -> tuple[int, ...]:
    found = []
    for same in zip(*ports, strict=True):
        shapes = [port.type.shape for port in same]
        rows = shapes[0][0] // batches[0] if shapes[0] else 0
        if len(set(shapes)) == 1:
            found.append(0)
        elif rows and all(s == (rows * b, *shapes[0][1:]) for s, b in zip(shapes, batches, strict=True)):
            found.append(rows)
        else:
            raise ExportError(
                f"{side} {same[0].name!r} does not grow with the batch in its first dimension: "
                + ", ".join("x".join(map(str, s)) for s in shapes),
                "export each batch size on its own",
            )
    return tuple(found)
