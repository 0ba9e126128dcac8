"""A first look at a GPU machine in under a minute: `python -m tests.gpu.smoke`.

Every step runs, whatever became of the one before; tracebacks come as they happen and a short table comes last.
"""

import sys
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

ROWS: list[tuple[str, str, float, str]] = []


def step(name: str, work: Callable[[], Any]) -> None:
    start = time.monotonic()
    try:
        said, state = str(work() or ""), "ok"
    except Exception as error:  # noqa: BLE001 - the script's purpose: show each step's failure and go on
        traceback.print_exc()
        said, state = f"{type(error).__name__}: {error}", "FAILED"
    ROWS.append((name, state, time.monotonic() - start, said))
    print(f"-- {name}: {state} {said}", flush=True)


@cache
def identity() -> Any:
    from core.device import detect_gpu

    return detect_gpu()


@cache
def reference_library() -> Path:
    from core.measure.reference import build

    return build(identity().spec.nvcc_arch)


@cache
def built(family: str, key: str, stem: str = "") -> Any:
    """The family's best-ranked candidate (whose stem holds `stem`) for a workload, compiled."""
    from core.build.builder import Builder
    from core.build.toolchain import find_toolchain
    from templates import families
    from templates.family import Candidate
    from templates.workload import parse_workload

    workload, gpu, chosen = parse_workload(key), identity().spec, families()[family]
    legal = [k for k in chosen.kernels(workload, gpu) if stem in k.stem and chosen.illegal(k, workload, gpu) is None]
    candidates = [Candidate(k, launch) for k in legal for launch in chosen.launches(k, workload, gpu)[:1]]
    best = min(candidates, key=lambda c: chosen.score(c, workload, gpu).us)
    [(_, outcome)] = Builder(find_toolchain(), gpu).build([best.kernel])
    if not hasattr(outcome, "library"):
        raise RuntimeError(f"{best.name}: {outcome.reason}")
    return workload, (best, outcome)


def runtime_works(name: str) -> str:
    """Copies, memset, events, capture and replay."""
    import numpy as np

    from core.measure.runtime import open_runtime

    runtime = open_runtime(name)
    try:
        stream, n = runtime.stream(), 1 << 20
        here, there, back = np.arange(n, dtype=np.uint8), runtime.alloc(n), np.empty(n, np.uint8)
        target = runtime.alloc(n)
        runtime.to_device(there, here)
        graph = runtime.capture(stream, lambda: runtime.copy(target, there, n, stream))
        runtime.memset(target, 7, n, stream)
        runtime.to_host(back, target)
        assert (back == 7).all(), "the captured copy must not have run yet"
        start, stop = runtime.event(), runtime.event()
        runtime.record(start, stream)
        runtime.launch(graph, stream)
        runtime.record(stop, stream)
        us = runtime.elapsed_us(start, stop)
        runtime.to_host(back, target)
        assert (back == here).all() and us > 0 and not runtime.broken()
        runtime.free_graph(graph)
        runtime.free(there)
        runtime.free(target)
        return f"{runtime.facts().name}, copy graph {us:.1f} us, {runtime.free_bytes() >> 30} GiB free"
    finally:
        runtime.close()


def reference_against_torch() -> str:
    """The reference GEMM and conv, and their rate."""
    import torch

    from core.measure.reference import Reference
    from core.measure.runtime import open_runtime
    from templates.workload import ConvWorkload, parse_workload

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    runtime = open_runtime("cuda-bindings")
    reference, stream = Reference(reference_library(), runtime), torch.cuda.current_stream().cuda_stream
    half = {"dtype": torch.float16, "device": "cuda"}
    gemm = parse_workload("gemm 333x201x105 f16.f32 row.col bias+relu")
    a, b, bias = torch.randn(333, 105, **half), torch.randn(201, 105, **half), torch.randn(201, **half)
    out = torch.empty(333, 201, device="cuda")
    reference.run(gemm, a.data_ptr(), b.data_ptr(), bias.data_ptr(), 0, out.data_ptr(), stream)
    wanted = torch.relu(a.float() @ b.float().T + bias.float())
    errors = [((out - wanted).norm() / wanted.norm()).item()]

    conv = parse_workload("conv 2x17x19x24 k16x3x3 p1.0.1.2 s2.1 d1.2 g4 f16.f32 bias+add+silu")
    assert isinstance(conv, ConvWorkload)
    x, w = torch.randn(2, 17, 19, 24, **half), torch.randn(16, 3, 3, 6, **half)
    bias, source = torch.randn(16, **half), torch.randn(2, conv.p, conv.q, 16, **half)
    out = torch.empty(2, conv.p, conv.q, 16, device="cuda")
    reference.run(conv, x.data_ptr(), w.data_ptr(), bias.data_ptr(), source.data_ptr(), out.data_ptr(), stream)
    padded = torch.nn.functional.pad(x.float().permute(0, 3, 1, 2), (0, 2, 1, 1))
    y = torch.nn.functional.conv2d(
        padded, w.float().permute(0, 3, 1, 2), bias.float(), stride=(2, 1), dilation=(1, 2), groups=4
    )
    wanted = torch.nn.functional.silu(y.permute(0, 2, 3, 1) + source.float())
    errors.append(((out - wanted).norm() / wanted.norm()).item())

    large = parse_workload("conv 32x224x224x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+relu")
    x, w = torch.randn(32, 224, 224, 64, **half), torch.randn(64, 3, 3, 64, **half)
    out = torch.empty(32, 224, 224, 64, device="cuda")
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    reference.run(large, x.data_ptr(), w.data_ptr(), w.data_ptr(), 0, out.data_ptr(), stream)
    stop.record()
    stop.synchronize()
    ms = start.elapsed_time(stop)
    runtime.close()
    assert max(errors) < 1e-5, errors
    return f"errors {errors[0]:.1e} {errors[1]:.1e}; conv 224x224x64: {ms:.1f} ms, {large.flops / ms / 1e9:.1f} TFLOP/s"


def measured(runtime: str, family: str, key: str, stem: str = "", vendor: bool = True) -> str:
    """Screens and finals of one candidate, with the vendor beside it."""
    from core.measure.measurement import Failure
    from core.measure.process import ProcessMeasurer

    workload, pair = built(family, key, stem)
    measurer = ProcessMeasurer(runtime, reference=reference_library())
    try:
        [screened] = measurer.screen(workload, [pair])
        print("  ", screened, flush=True)
        if isinstance(screened, Failure):
            raise RuntimeError(f"{screened.stage}: {screened.reason}\n{screened.log}")
        start = time.monotonic()
        finals = measurer.final(workload, [pair], vendor)
        seconds = time.monotonic() - start
        for outcome in finals:
            print("  ", outcome, flush=True)
        for note in measurer.notes:
            print("   note:", note, flush=True)
        failed = [o for o in finals if isinstance(o, Failure)]
        if failed:
            raise RuntimeError(f"{failed[0].stage}: {failed[0].reason}\n{failed[0].log}")
        words = [f"{o.source.split()[0]} {o.us:.2f} us" for o in finals if not isinstance(o, Failure)]
        state = screened.state
        return (
            f"screen {screened.us:.2f} us, error {screened.relative_l2:.1e}, {state.sm_mhz} MHz {state.power_w:.0f} W; "
            f"final {', '.join(words)} in {seconds:.1f} s"
        )
    finally:
        measurer.close()


def main() -> int:
    step("detect", identity)
    for name in ("cuda-bindings", "pycuda"):
        step(f"runtime {name}", partial(runtime_works, name))
    step("reference library", reference_library)
    step("reference vs torch", reference_against_torch)
    gemm, conv = "gemm 1280x768x768 f16.f32 row.col", "conv 32x28x28x128 k128x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32"
    for runtime in ("cuda-bindings", "pycuda"):
        step(f"gemm sm80, {runtime}", partial(measured, runtime, "sm80_gemm", f"{gemm} bias+relu"))
    step("gemm unfused vendor", lambda: measured("cuda-bindings", "sm80_gemm", f"{gemm} bias+gelu_erf+add"))
    step("conv sm80 + cudnn", lambda: measured("cuda-bindings", "sm80_conv", f"{conv} bias+relu"))
    step("conv residual + cudnn", lambda: measured("cuda-bindings", "sm80_conv", f"{conv} bias+add+relu"))
    if ROWS[0][1] == "ok" and identity().sm == 90:
        step("gemm sm90", lambda: measured("cuda-bindings", "sm90_gemm", f"{gemm} bias+relu"))
    print()
    for name, state, seconds, said in ROWS:
        print(f"{name:24}{state:8}{seconds:6.1f} s  {said[:200]}")
    return int(any(state != "ok" for _, state, _, _ in ROWS))


if __name__ == "__main__":
    sys.exit(main())
