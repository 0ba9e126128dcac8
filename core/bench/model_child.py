"""One model beside its PyTorch peers in one process: `python -m core.bench.model_child JOB-JSON`.

All sides read the same inputs from device memory and run as one CUDA graph each; rounds go A B C A B C. A job without
a folder only runs torch.compile, whose own cache then serves the job that measures.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from core.errors import BoltError

_ROUNDS = 15
_ROUND_MS = 20.0


def compile_peer(job: dict[str, Any]) -> dict[str, Any]:
    """{"compile_s": seconds of torch.compile}, or {"compile_s": None, "note": why the peer can't run the model}."""
    from core.bench.torch_peer import TorchPeer, unsupported
    from core.device import read_facts
    from core.export.reference import random_inputs
    from core.importer.load import load_graph
    from core.measure.alone import alone

    graph = load_graph(job["model"], job["batch"])
    missing = unsupported(graph)
    if missing:
        return {"compile_s": None, "note": f"no PyTorch form for {', '.join(missing)}"}
    peer, bus = TorchPeer(graph), read_facts().pci_bus
    peer.time_choices_under(lambda: alone(bus, lambda: None))
    _, seconds = peer.captured_compiled(peer.inputs(random_inputs(graph, seed=0)))
    return {"compile_s": seconds, "note": ""}


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Latencies in milliseconds: ours_ms, eager_ms, compiled_ms (None where a peer can't run it, `note` says why)."""
    import torch

    from core.bench.torch_peer import TorchPeer, unsupported
    from core.device import read_facts
    from core.export.reference import random_inputs
    from core.export.verify import checked_manifest
    from core.export.verify_child import Library
    from core.importer.load import load_graph
    from core.measure.alone import alone

    folder = Path(job["folder"])
    manifest = checked_manifest(folder)
    graph = load_graph(job["model"], job["batch"])
    arrays = random_inputs(graph, seed=0)
    device = [torch.from_numpy(arrays[p["name"]]).cuda().contiguous() for p in manifest["inputs"]]
    outputs = [torch.empty(o["shape"], dtype=torch.float32, device="cuda") for o in manifest["outputs"]]
    library = Library(folder / f"lib{manifest['name']}.so", manifest["name"])
    workspace = torch.empty(max(library.workspace_bytes, 256), dtype=torch.uint8, device="cuda")
    pointers = [t.data_ptr() for t in device], [t.data_ptr() for t in outputs]

    def ours() -> None:
        library.run(*pointers, workspace.data_ptr(), torch.cuda.current_stream().cuda_stream)

    sides: dict[str, Callable[[], None]] = {"ours_ms": ours}
    note, compile_s = "", None
    missing = unsupported(graph)
    if missing:
        note = f"no PyTorch form for {', '.join(missing)}"
    else:
        peer = TorchPeer(graph)
        tensors = peer.inputs(arrays)
        sides["eager_ms"] = peer.captured(tensors)
        if job["compile"]:
            sides["compiled_ms"], compile_s = peer.captured_compiled(tensors)
    with alone(read_facts().pci_bus, lambda: print("another program measures on this GPU: waiting", file=sys.stderr)):
        times = interleaved(torch, sides)
    library.close()
    return {**times, "compile_s": compile_s, "note": note, "gpu": torch.cuda.get_device_name()}


def interleaved(torch: Any, sides: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median milliseconds of a call of each side, from rounds that take turns on a side stream."""
    samples: dict[str, list[float]] = {name: [] for name in sides}
    with torch.cuda.stream(torch.cuda.Stream()):
        counts = {name: max(3, int(_ROUND_MS / max(_sample(torch, call, 5), 0.01))) for name, call in sides.items()}
        for _ in range(_ROUNDS):
            for name, call in sides.items():
                samples[name].append(_sample(torch, call, counts[name]))
    return {name: median(found[1:]) for name, found in samples.items()}


def _sample(torch: Any, call: Callable[[], None], runs: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    start.record()
    for _ in range(runs):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / runs


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    try:
        found = work(wanted) if "folder" in wanted else compile_peer(wanted)
    except BoltError as failure:
        sys.exit(f"error: {failure}")
    print(json.dumps(found), flush=True)
