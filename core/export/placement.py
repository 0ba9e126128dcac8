"""Where tensors of the model lie between the steps of a program: what comparing it layer by layer needs to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import ExportError
from core.export import layout as L

if TYPE_CHECKING:
    from core.export.forms import Form
    from core.export.memory import MemoryPlan
    from core.export.program import Buffer, Program


@dataclass(frozen=True)
class Placed:
    """A tensor that fills a buffer in this layout. With a `pitch` its rows of `width` elements lie that far apart, the
    first one from element `first` on.
    """

    tensor: str
    buffer: int
    layout: L.Layout
    first: int = 0
    width: int = 0
    pitch: int = 0


def placements(forms: "Mapping[str, Mapping[Form, int]]", buffers: "Sequence[Buffer]") -> tuple[Placed, ...]:
    """The tensors of each buffer that tensors fill without padding: those it was made for, else one of their views."""
    found: dict[tuple[int, int], Placed] = {}
    for tensor, copies in forms.items():
        for form, index in copies.items():
            part = form.slice
            if form.channels or (part is None and form.layout.size != buffers[index].elements):
                continue
            where = (part.first, part.width, part.pitch) if part is not None else (0, 0, 0)
            key = index, where[0]
            if key not in found or (part is None and tensor == buffers[index].tensor):
                found[key] = Placed(tensor, index, form.layout, *where)
    return tuple(found[key] for key in sorted(found))


def written(program: "Program", memory: "MemoryPlan") -> dict[int, list[dict[str, Any]]]:
    """For each step the tensors that are whole in memory once it has run, as plain JSON values.

    "space" is "arena" or "output"; "at" is the offset in the workspace in bytes, or which output; "extents" and "order"
    are those of a core.export.layout.Layout; "first", "width" and "pitch" as in `Placed`.
    """
    from core.export.program import Space

    outputs = {port.buffer: i for i, port in enumerate(program.outputs)}
    last = {index: number for number, step in enumerate(program.steps) for index in step.writes}
    known: dict[int, list[Placed]] = {}
    for placed in program.placed:
        known.setdefault(placed.buffer, []).append(placed)
    known |= {p.buffer: [Placed(p.name, p.buffer, L.row_major(p.type.shape))] for p in program.outputs}
    found: dict[int, list[dict[str, Any]]] = {}
    for index, number in last.items():
        buffer = program.buffers[index]
        arena = buffer.space is Space.ARENA
        for placed in known.get(index, ()):
            found.setdefault(number, []).append(
                {"tensor": placed.tensor, "dtype": str(buffer.dtype), "elements": buffer.elements,
                 "space": "arena" if arena else "output", "at": memory.offsets[index] if arena else outputs[index],
                 "extents": list(placed.layout.extents), "order": list(placed.layout.order),
                 "first": placed.first, "width": placed.width, "pitch": placed.pitch}
            )  # fmt: skip
    return found


def require_writes(data: Mapping[str, Any]) -> None:
    """Raises ExportError if the manifest does not soundly tell what each step writes, as before it was written down."""

    def sound(placed: Any) -> bool:
        whole = all(
            type(placed.get(k)) is int and placed[k] >= 0 for k in ("elements", "at", "first", "width", "pitch")
        )
        listed = all(isinstance(placed.get(k), list) for k in ("extents", "order"))
        return whole and listed and placed.get("space") in ("arena", "output") and isinstance(placed["tensor"], str)

    try:
        if all(sound(placed) for step in data["steps"] for placed in step["writes"]) and isinstance(
            data["regions"], list
        ):
            return
    except (TypeError, KeyError, AttributeError):
        pass
    raise ExportError("the manifest does not tell what each step of the library writes", "export the model again")


def logical(memory: np.ndarray, placed: Mapping[str, Any], shape: Sequence[int]) -> np.ndarray:
    """The tensor of `shape` from the flat contents of its buffer."""
    if placed["pitch"]:
        first, end = placed["first"], placed["first"] + placed["width"]
        memory = np.ascontiguousarray(memory.reshape(-1, placed["pitch"])[:, first:end]).reshape(-1)
    return L.unpack(memory, L.Layout(tuple(placed["extents"]), tuple(placed["order"])), shape)


def stored_in(folder: Path, step: int, number: int) -> Path:
    """The file in which the process that runs the library leaves the `number`-th tensor of a step."""
    return folder / f"step{step}_{number}.npy"
