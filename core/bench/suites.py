"""The built-in lists of workloads. Shapes: the paper's figures 8 and 9 (research marks which are recalled), and the
layers on which this project's figures against cuBLASLt and cuDNN were first measured.
"""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from core.bench.layers import convolution, distinct, label
from core.errors import BoltError
from templates.epilogue import Epilogue, EpilogueOp, parse_epilogue
from templates.workload import (
    B2bConvWorkload,
    B2bGemmWorkload,
    ConvWorkload,
    GemmWorkload,
    TowerWorkload,
    Workload,
    parse_workload,
)

_BIAS_RELU = parse_epilogue("bias+relu")
_BATCH = 32

# (M, N, K): those that were measured first, two that were lost to the vendor; then BERT (base, 128 tokens x 32; large,
# 384 x 8; the masked-language head), GPT-2 (one and eight tokens, prefill, the head of 50257), DLRM's towers, the
# classifiers of ResNet-18/50 and VGG, and ends of the range. Odd: N or K is not a multiple of eight.
_GEMMS = [
    (1280, 3072, 768), (1280, 768, 3072), (1280, 768, 768), (1024, 1024, 1024), (_BATCH, 1000, 2048), (1280, 2304, 768),
    (2048, 2048, 2048), (4096, 4096, 4096), (1568, 512, 2048), (6272, 512, 1024),
    (4096, 768, 768), (4096, 2304, 768), (4096, 3072, 768), (4096, 768, 3072), (3072, 1024, 1024), (3072, 4096, 1024),
    (3072, 1024, 4096), (640, 30522, 768),
    (1, 2304, 768), (1, 3072, 768), (1, 768, 3072), (1, 50257, 768), (8, 3072, 768), (16, 1024, 4096),
    (1024, 3072, 1024), (1024, 1024, 4096), (1024, 50257, 768),
    (2048, 512, 13), (2048, 256, 512), (2048, 512, 479), (16384, 512, 256), (16384, 1024, 1024), (16384, 1, 256),
    (1, 1000, 2048), (8, 1000, 512), (128, 1000, 2048), (256, 1000, 512), (_BATCH, 4096, 25088), (_BATCH, 4096, 4096),
    (333, 555, 777), (8192, 8192, 8192), (16384, 4096, 1024),
]  # fmt: skip
# (height = width, channels in, channels out, filter, stride, batch)
_CONVS = [
    (56, 64, 64, 3, 1, 32), (28, 128, 128, 3, 1, 32), (14, 256, 256, 3, 1, 32), (7, 512, 512, 3, 1, 32),
    (56, 64, 256, 1, 1, 32), (56, 256, 512, 1, 2, 32), (56, 128, 128, 3, 2, 32), (224, 64, 64, 3, 1, 32),
    (112, 128, 128, 3, 1, 32), (28, 512, 512, 3, 1, 128),
]  # fmt: skip
# (M, K0, N0, N1): the paper's table 1, its 2464: 4 -> 1 -> 4 filled up to eight columns; from bottom and top of DLRM
# (13-512-256-64 and 512-256-1) the pairs that a block's shared memory covers; a wide intermediate.
_B2B_GEMMS = [
    (2464, 8, 8, 8), (16384, 256, 64, 16), (32768, 576, 128, 64), (128320, 96, 32, 96), (2048, 512, 256, 64),
    (16384, 512, 256, 64), (2048, 512, 256, 8), (16384, 512, 256, 8), (16384, 256, 512, 64),
]  # fmt: skip
# (M, widths): DLRM's bottom, its 13 features filled up to 16 columns, and its top behind a first layer of 512.
_TOWERS = [(m, widths) for m in (2048, 16384) for widths in ((16, 512, 256, 64), (512, 512, 256, 1))]
# (height = width, channels in, channels between, channels out, stride): table 2, its 3 channels filled up to eight; the
# same without a stride to more channels; the further blocks of RepVGG-A0-Aug.
_B2B_CONVS = [
    (224, 8, 48, 48, 2), (112, 48, 48, 48, 2), (56, 48, 48, 48, 1), (224, 8, 64, 64, 2), (112, 64, 64, 64, 2),
    (56, 64, 64, 64, 1), (56, 64, 64, 256, 1), (56, 48, 96, 96, 2), (28, 96, 96, 96, 1), (28, 96, 192, 192, 2),
    (14, 192, 192, 192, 1),
]  # fmt: skip
_ACTIVATIONS = ("relu", "gelu_erf", "gelu_tanh", "hard_swish", "softplus", "silu")


def _epilogues() -> dict[str, Workload]:
    found: dict[str, Workload] = {}
    for name in _ACTIVATIONS:
        chain = Epilogue((EpilogueOp("bias"), EpilogueOp(name)))
        found[f"gemm 1280x3072x768 {name}"] = GemmWorkload(1280, 3072, 768, epilogue=chain)
        found[f"conv 56x56 64->64 {name}"] = convolution(_BATCH, 56, 64, 64, 3, 1, chain)
    return found


def _pairs() -> dict[str, dict[str, Workload]]:
    gemms: dict[str, Workload] = {
        f"{m}: {k}->{n0}->{n1}": B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=_BIAS_RELU), n1, _BIAS_RELU)
        for m, k, n0, n1 in _B2B_GEMMS
    }
    for m, (k, n0, n1, n2) in _TOWERS:
        first = GemmWorkload(m, n0, k, epilogue=_BIAS_RELU)
        name = f"{m}: {k}->{n0}->{n1}->{n2}"
        gemms[name] = TowerWorkload(B2bGemmWorkload(first, n1, _BIAS_RELU), n2, _BIAS_RELU)
    convs: dict[str, Workload] = {}
    for s, c, n0, n1, stride in _B2B_CONVS:
        image = convolution(_BATCH, s, c, n0, 3, stride, _BIAS_RELU)
        assert isinstance(image, ConvWorkload)
        convs[f"n{_BATCH} {s}x{s} {c}->{n0} 3x3 s{stride} ->{n1} 1x1"] = B2bConvWorkload(image, n1, _BIAS_RELU)
    return {"b2b-gemm": gemms, "b2b-conv": convs}


def _convs() -> dict[str, Workload]:
    found: dict[str, Workload] = {}
    for size, c, k, taps, stride, batch in _CONVS:
        workload = convolution(batch, size, c, k, taps, stride, _BIAS_RELU)
        found[label(workload, batch, size)] = workload
    return found | {name: w for name, w in distinct(_BATCH).items() if w not in found.values()}


# The paper's table 3: (images, height, width, channels in, channels out, filter). Only alignment 2 divides 46 and 174.
_PADDING = [
    (32, 20, 26, 46, 32, (3, 3)), (32, 20, 26, 46, 32, (5, 5)), (128, 14, 19, 46, 32, (5, 7)),
    (288, 11, 15, 46, 32, (5, 7)), (128, 20, 26, 174, 64, (3, 3)), (128, 20, 26, 174, 64, (5, 5)),
]  # fmt: skip


def _paddings() -> dict[str, Workload]:
    return {
        f"n{n} {h}x{w} {c}->{k} {r}x{s}": ConvWorkload(
            n, h, w, c, k, r, s, (r // 2, s // 2, r // 2, s // 2), epilogue=_BIAS_RELU
        )
        for n, h, w, c, k, (r, s) in _PADDING
    }


# What `bench audit` measures the whole space of: a large, a medium and few-tile products, small and large M, a source,
# another layout, a batch; and convolutions of every image size.
def _audited() -> dict[str, Workload]:
    gemms, convs = suite("gemm"), suite("conv")
    named = {n: gemms[n] for n in ("1280x3072x768", "1568x512x2048", "32x1000x2048", "8x3072x768", "2048x2048x2048")}
    named["25088x256x512 bias+add+relu"] = GemmWorkload(25088, 256, 512, epilogue=parse_epilogue("bias+add+relu"))
    named["512x512x64 b96"] = GemmWorkload(512, 512, 64, batch=96)
    return named | {
        n: convs[n]
        for n in (
            "n32 56x56 64->64 3x3 s1", "n32 28x28 128->128 3x3 s1", "n32 14x14 256->256 3x3 s1",
            "n32 7x7 512->512 3x3 s1", "n32 56x56 128->128 3x3 s2",
        )
    }  # fmt: skip


def suite(name: str) -> Mapping[str, Workload]:
    """Label -> workload of the built-in suites "gemm", "conv", "epilogue", "padding", "audit", "b2b-gemm" and
    "b2b-conv". Raises KeyError for another name.
    """
    made: dict[str, Callable[[], dict[str, Workload]]] = {
        "gemm": lambda: {f"{m}x{n}x{k}": GemmWorkload(m, n, k, epilogue=_BIAS_RELU) for m, n, k in _GEMMS},
        "conv": _convs,
        "epilogue": _epilogues,
        "padding": _paddings,
        "audit": _audited,
        "b2b-gemm": lambda: _pairs()["b2b-gemm"],
        "b2b-conv": lambda: _pairs()["b2b-conv"],
    }
    return made[name]()


def odd(workload: Workload) -> bool:
    """Whether an extent that is contiguous in memory is no multiple of eight, the widest access of 16-bit elements."""
    if isinstance(workload, GemmWorkload):
        rows, columns = workload.layout_a == "row", workload.layout_b == "row"
        return bool((workload.k if rows else workload.m) % 8 or (workload.n if columns else workload.k) % 8) or bool(
            workload.n % 8
        )
    return isinstance(workload, ConvWorkload) and bool(workload.c % 8 or workload.k % 8)


def read_shapes(path: Path) -> dict[str, Workload]:
    """The user's own list: JSON (a list of workload keys, or label -> key) or CSV with columns name, workload.

    Raises BoltError naming the first entry that is not a workload.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".json":
            data = json.loads(text)
            pairs = data.items() if isinstance(data, dict) else ((key, key) for key in data)
        else:
            pairs = ((row.get("name") or row["workload"], row["workload"]) for row in csv.DictReader(text.splitlines()))
        return {str(label): parse_workload(str(key)) for label, key in pairs}
    except OSError as error:
        raise BoltError(f"cannot read {path}: {error.strerror}", "give a CSV or JSON file of workloads") from None
    except (ValueError, KeyError, TypeError) as error:
        example = GemmWorkload(1280, 768, 768, epilogue=_BIAS_RELU).key
        raise BoltError(f"{path} is not a list of workloads: {error}", f"an entry looks like: {example}") from None
