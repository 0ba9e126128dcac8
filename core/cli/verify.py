"""`verify`: load an exported library, compare it with ONNX Runtime, print errors and latency."""

import argparse
from pathlib import Path
from typing import Any

from core.cli import Reporter
from core.errors import ExportError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder that `export` wrote")
    parser.add_argument("--model", metavar="MODEL", help="the original model (default: the one the manifest names)")
    parser.add_argument("--inputs", metavar="FILE", help="a .npz file with the inputs by name (default: random ones)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random inputs (default: 0)")
    parser.add_argument("--runtime", default="cuda-bindings", metavar="NAME", help="cuda-bindings (default) or pycuda")
    parser.add_argument("--trust", action="store_true", help="load a library that was exported elsewhere")
    parser.add_argument("--per-layer", action="store_true", help="find the first region that differs, and overflows")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the GPU (default: 0)")


def run(args: argparse.Namespace, reporter: Reporter) -> int:
    from core.export.verify import verify

    inputs = Path(args.inputs) if args.inputs else None
    data = verify(
        Path(args.folder), args.model, inputs, args.seed, args.runtime, args.device,
        trust=args.trust, per_layer=args.per_layer,
    )  # fmt: skip
    reporter.result(data, lambda: as_text(data))
    if not data["ok"]:
        everything = [o for found in (data, *data.get("batches", [])) for o in found["outputs"]]
        wrong = next(o for o in everything if not o["ok"])
        raise ExportError(
            f"output {wrong['name']!r} of {data['library']} differs from ONNX Runtime by a relative L2 of "
            f"{wrong['relative_l2']:.3g}, more than {data['tolerance']:g}",
            "export the model again",
        )
    return 0


def as_text(data: dict[str, Any]) -> str:
    """A line for each output, each note, each tensor that was compared on the way, the latency; then other batches."""
    lines = _outputs(data)
    lines += data["notes"]
    if "layers" in data:
        from core.export.layers import layer_lines

        lines += layer_lines(data["layers"], data["dtype"])
    lines.append(f"{_latency(data)} on {data['gpu']}, against {data['reference']}")
    for found in data.get("batches", []):
        lines += [f"batch {found['batch']}: {line}" for line in (*_outputs(found), *found["notes"], _latency(found))]
    return "\n".join(lines)


def _outputs(found: dict[str, Any]) -> list[str]:
    return [
        f"{'ok' if o['ok'] else 'WRONG'}  {o['name']}: relative L2 {o['relative_l2']:.3g}, max abs {o['max_abs']:.3g}"
        for o in found["outputs"]
    ]


def _latency(found: dict[str, Any]) -> str:
    return f"{found['latency_ms']:.4f} ms ({min(found['samples_ms']):.4f} to {max(found['samples_ms']):.4f})"
