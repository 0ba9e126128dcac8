"""The program that is killed: tunes with a simulated GPU, and exports, through the real records, cache and files.

`python -m tests.faults.work FOLDER NUMBER` works until it is done or killed. It prints one line for each thing that it
has been told is kept: what is printed must be there afterwards.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

from onnx import ModelProto

from core.build.builder import Builder
from core.build.toolchain import Toolchain
from core.device import resolve_gpu
from core.errors import BoltError
from core.export.exporter import Origins, export
from core.fusion.planner import plan
from core.importer.load import load_graph
from core.measure.measurement import Phase
from core.project import Project, save_project
from core.records.rows import Identity
from core.records.store import Records
from core.tuner.events import CandidateMeasured, Event, WorkloadFinished
from core.tuner.job import TuningJob
from core.tuner.options import Options
from templates.types import DType
from tests.core.importer.models import model, node, weights
from tests.core.tuning_stubs import H200, SimulatedMeasurer, StubFamily, fake_toolchain, gemm, gpu_identity

FAMILY = StubFamily()
IDENTITY = Identity(gpu_identity(), "13.0.88", "4.2.0")
LIBRARY_BYTES = 1 << 20


def records(folder: Path) -> Records:
    return Records(folder / "records.sqlite", shipped=[], families={FAMILY.name: FAMILY})


def tune(folder: Path, number: int, toolchain: Toolchain) -> None:
    """Workloads and kernels that no run before had, so there is always something to do."""
    family = replace(FAMILY, tiles=tuple(1000 + 10 * number + i for i in range(8)))

    def tell(event: Event) -> None:
        if isinstance(event, CandidateMeasured) and event.measurement.phase is Phase.SCREEN:
            print(f"measured\t{event.measurement.workload}\t{event.measurement.candidate}", flush=True)
        elif isinstance(event, WorkloadFinished) and not event.from_records:
            print(f"finished\t{event.workload}\t{event.best.candidate if event.best else ''}", flush=True)

    builder = Builder(toolchain, H200, folder / "cache", jobs=2, families_by_name={family.name: family})
    work = [gemm(m=64 + 8 * (number + i)) for i in range(3)]
    measurer = SimulatedMeasurer(delay_s=0.001)
    job = TuningJob(work, IDENTITY, builder, [measurer], records(folder), Options(limit=6), {family.name: family})
    job.run(tell)


def write_export(folder: Path, number: int, toolchain: Toolchain) -> None:
    graph = load_graph(small_model().SerializeToString())
    with mock.patch("core.export.exporter.build_library", _library_in_pieces):
        export(
            graph, plan(graph), {}, resolve_gpu("h200"), folder / "out", toolchain, Origins("small"), f"number{number}"
        )
    print(f"exported\tnumber{number}", flush=True)


def small_model() -> ModelProto:
    nodes = [node("Exp", ["x"], ["e"]), node("Mul", ["e", "w"], ["m"]), node("Tanh", ["m"], ["y"])]
    return model(nodes, {"x": [2, 64]}, ["y"], {"w": weights(2, 64)})


def _library_in_pieces(folder: Path, name: str, *rest: object) -> None:
    with (folder / f"lib{name}.so").open("wb") as file:
        for _ in range(16):
            file.write(bytes(LIBRARY_BYTES // 16))
            file.flush()


def write_project(folder: Path, number: int) -> None:
    save_project(Project(f"model {number}.onnx", None, DType.F16, "h200"), folder / "a.bolt")
    print(f"project\tmodel {number}.onnx", flush=True)


def main(argv: list[str]) -> int:
    folder, number = Path(argv[1]), int(argv[2])
    os.environ["BOLT_CACHE"] = str(folder / "cache")
    toolchain = fake_toolchain(folder)
    try:
        print("ready", flush=True)
        write_project(folder, number)
        tune(folder, number, toolchain)
        write_export(folder, number, toolchain)
    except BoltError as error:
        print(f"refused\t{error}", flush=True)
        return 1
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
