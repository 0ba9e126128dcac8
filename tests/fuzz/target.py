"""What is done with one input: all that the program does with a model before a compiler or a GPU sees it."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.device import resolve_gpu
from core.errors import ExportError, ModelError, PlanError
from core.export.emit import emit_sources
from core.export.exporter import complete_choices
from core.export.lower import lower
from core.export.memory import lifetimes, plan_memory
from core.export.weights import write_weights
from core.fusion.files import load_plan, save_plan
from core.fusion.planner import plan
from core.fusion.prepare import prepare
from core.fusion.propose import propose
from core.graph.repeats import find_repeats
from core.importer.load import load_graph
from templates.types import DType

DOCUMENTED = (ModelError, PlanError, ExportError)
_DTYPES = [DType.F16, DType.F16, DType.BF16, DType.TF32]
_BATCHES = [*[None] * 12, 1, 2, 2, 32, 2**31, 2**62]
_GPUS = ["h200", "h200", "a100"]
_LARGEST_WEIGHTS = 64 << 20  # a file of more says nothing new and costs time


@dataclass(frozen=True)
class Answer:
    """`kind`: exported (went all the way), refused (with a documented error) or fault; `seconds` of the processor."""

    kind: str
    stage: str
    said: str
    seconds: float = 0.0
    peak_mb: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def attempt(model: bytes | Path, rng: random.Random) -> Answer:
    """Imports, prepares, plans, ranks, lowers and writes the sources of a model. Never raises but for Ctrl-C."""
    stage = "start"
    batch, dtype, gpu = rng.choice(_BATCHES), rng.choice(_DTYPES), resolve_gpu(rng.choice(_GPUS))
    work = Path(tempfile.mkdtemp(prefix="bolt-fuzz-"))
    began = time.process_time()
    try:
        stage = "import"
        graph = load_graph(model, batch)
        stage = "prepare"
        graph = prepare(graph)
        stage = "plan"
        planned = plan(graph, dtype)
        find_repeats(graph)
        propose(graph, planned, gpu.spec)
        save_plan(planned, work / "plan.json")
        if load_plan(work / "plan.json", graph, dtype).regions != planned.regions:
            return Answer("fault", "plan", "the plan that was saved is another one when it is loaded")
        stage = "rank"
        choices = complete_choices(planned, {}, gpu)
        stage = "lower"
        program = lower(graph, planned, choices)
        stage = "memory"
        memory = plan_memory(lifetimes(program))
        stage = "emit"
        if sum(c.nbytes for c in program.constants.values()) < _LARGEST_WEIGHTS:
            weights = write_weights(program, work / "w.safetensors")
            emit_sources(program, memory, weights, gpu.spec, "fuzzed", work, "4.2.0")
        return Answer("exported", stage, "", time.process_time() - began)
    except DOCUMENTED as error:
        text, seconds = str(error), time.process_time() - began
        if "\n" in text or "\r" in text or not text:
            return Answer("fault", stage, f"an error of several lines: {text!r:.300}", seconds)
        return Answer("refused", stage, f"{type(error).__name__}: {text}"[:300], seconds)
    except Exception as error:  # noqa: BLE001 - every other exception is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        own = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if "/core/" in f.filename or "/templates/" in f.filename
        ]
        at = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(own[-3:])) or where.filename
        return Answer("fault", stage, f"{type(error).__name__} at {at}: {error}"[:400], time.process_time() - began)
    finally:
        shutil.rmtree(work, ignore_errors=True)
