"""A partial export: libraries for what can be carried, ONNX files for the rest, and a Python caller that runs both.

There is no ONNX Runtime custom operator: its C header is in none of the packages this depends on.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ExportError
from core.export.c_text import library_name
from core.export.environment import environment
from core.export.exporter import GROWING, Origins, check_target
from core.export.manifest import FORMAT, NAME, checksums
from core.export.partition import Stage
from core.graph.ir import Graph
from core.graph.to_onnx import to_model

if TYPE_CHECKING:
    from onnx import ModelProto

# Exports one subgraph to a folder, given the library's name and where its model will lie; returns the manifest.
ExportPart = Callable[[Graph, Path, str, Origins], dict[str, Any]]


def export_partial(
    graph: Graph, stages: Sequence[Stage], out_dir: Path, origins: Origins, name: str | None, export_part: ExportPart
) -> dict[str, Any]:
    """Write the folder: `<stage>/` for each library, `<stage>.onnx` for every stage, `<name>.py` that runs them.

    Returns its manifest, with the manifests of the libraries under "parts". Raises ExportError; also what `export_part`
    raises. An earlier export in `out_dir` is replaced once everything is there.
    """
    out_dir = out_dir.absolute()
    check_target(out_dir)
    library = library_name(name or graph.name)
    try:
        return _write(graph, stages, out_dir, origins, library, export_part)
    except OSError as error:
        what = f"{out_dir} can't be written ({error.strerror or error})"
        raise ExportError(what, "free some space or choose another folder with -o") from error


def _write(
    graph: Graph, stages: Sequence[Stage], out_dir: Path, origins: Origins, library: str, export_part: ExportPart
) -> dict[str, Any]:
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{GROWING}{os.getpid()}-", dir=out_dir.parent) as made:
        folder = Path(made) / "export"
        folder.mkdir()
        told, parts = [], []
        for number, stage in enumerate(stages):
            label = f"{library}_{'part' if stage.carried else 'rest'}{number}"
            (folder / f"{label}.onnx").write_bytes(stage_model(stage.graph).SerializeToString())
            if stage.carried:
                source = Origins(str(out_dir / f"{label}.onnx"))
                parts.append(export_part(stage.graph, folder / label, label, source))
            told.append(
                {"name": label, "carried": stage.carried, "nodes": [n.name for n in stage.graph],
                 "inputs": list(stage.graph.inputs), "outputs": list(stage.graph.outputs)}
            )  # fmt: skip
        caller = environment().get_template("partial.py.j2")
        text = caller.render(name=library, stages=told, inputs=graph.inputs, outputs=graph.outputs)
        (folder / f"{library}.py").write_text(text, encoding="utf-8")
        data = {"format": FORMAT, "name": library, "model": graph.name, "source": origins.source,
                "batch": origins.batch, "stages": told, "files": checksums(folder)}  # fmt: skip
        (folder / NAME).write_text(json.dumps(data, indent=1), encoding="utf-8")
        folder.chmod(0o755)
        if out_dir.exists():
            shutil.move(out_dir, Path(made) / "earlier")
        os.rename(folder, out_dir)
    return {**data, "parts": parts}


def stage_model(graph: Graph) -> "ModelProto":
    """The subgraph as a model. Raises ExportError if it reads a tensor whose type is known only when the model runs."""
    from onnx import helper

    unknown = [t for t in graph.inputs if t not in graph.types]
    if unknown:
        raise ExportError(
            f"the tensor {unknown[0]!r} would pass between two parts, and its type is known only when the model runs",
            "export the model without --partial up to that tensor",
        )
    typed = graph.replaced(graph.nodes, outputs=tuple(t for t in graph.outputs if t in graph.types))
    model = to_model(typed)
    declared = {o.name: o for o in model.graph.output}
    whole = [declared.get(t) or helper.make_empty_tensor_value_info(t) for t in graph.outputs]
    del model.graph.output[:]
    model.graph.output.extend(whole)
    return model
