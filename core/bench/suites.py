"""The built-in lists of workloads. Shapes: the paper's figures 8 and 9 (research marks which are recalled), and the
layers on which this project's figures against cuBLASLt and cuDNN were first measured.
"""

import csv
import json
from collections.abc import Mapping
from pathlib import Path

from core.errors import BoltError
from templates.epilogue import Epilogue, EpilogueOp, parse_epilogue
from templates.workload import (
    B2bConvWorkload,
    B2bGemmWorkload,
    ConvWorkload,
    GemmWorkload,
    Workload,
    parse_workload,
)

_BIAS_RELU = parse_epilogue("bias+relu")
_BATCH = 32

_GEMMS = [
    (1280, 3072, 768), (1280, 768, 3072), (1280, 768, 768), (1024, 1024, 1024), (_BATCH, 1000, 2048), (1280, 2304, 768),
    (2048, 2048, 2048), (4096, 4096, 4096),
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
# (height = width, channels in, channels between, channels out, stride): table 2, its 3 channels filled up to eight; the
# same without a stride to more channels; the further blocks of RepVGG-A0-Aug.
_B2B_CONVS = [
    (224, 8, 48, 48, 2), (112, 48, 48, 48, 2), (56, 48, 48, 48, 1), (224, 8, 64, 64, 2), (112, 64, 64, 64, 2),
    (56, 64, 64, 64, 1), (56, 64, 64, 256, 1), (56, 48, 96, 96, 2), (28, 96, 96, 96, 1), (28, 96, 192, 192, 2),
    (14, 192, 192, 192, 1),
]  # fmt: skip
_ACTIVATIONS = ("relu", "gelu_erf", "gelu_tanh", "hard_swish", "softplus", "silu")


def _conv(size: int, c: int, k: int, filters: int, stride: int, batch: int, epilogue: Epilogue) -> Workload:
    if filters == 1 and stride == 1:
        return GemmWorkload(batch * size * size, k, c, epilogue=epilogue)
    pad = filters // 2
    return ConvWorkload(
        batch, size, size, c, k, filters, filters, (pad,) * 4, (stride, stride), epilogue=epilogue
    )  # fmt: skip


def _epilogues() -> dict[str, Workload]:
    found: dict[str, Workload] = {}
    for name in _ACTIVATIONS:
        chain = Epilogue((EpilogueOp("bias"), EpilogueOp(name)))
        found[f"gemm 1280x3072x768 {name}"] = GemmWorkload(1280, 3072, 768, epilogue=chain)
        found[f"conv 56x56 64->64 {name}"] = _conv(56, 64, 64, 3, 1, _BATCH, chain)
    return found


def _pairs() -> dict[str, dict[str, Workload]]:
    gemms: dict[str, Workload] = {
        f"{m}: {k}->{n0}->{n1}": B2bGemmWorkload(GemmWorkload(m, n0, k, epilogue=_BIAS_RELU), n1, _BIAS_RELU)
        for m, k, n0, n1 in _B2B_GEMMS
    }
    convs: dict[str, Workload] = {}
    for s, c, n0, n1, stride in _B2B_CONVS:
        first = _conv(s, c, n0, 3, stride, _BATCH, _BIAS_RELU)
        assert isinstance(first, ConvWorkload)
        convs[f"n{_BATCH} {s}x{s} {c}->{n0} 3x3 s{stride} ->{n1} 1x1"] = B2bConvWorkload(first, n1, _BIAS_RELU)
    return {"b2b-gemm": gemms, "b2b-conv": convs}


def suite(name: str) -> Mapping[str, Workload]:
    """Label -> workload of the built-in suites "gemm", "conv", "epilogue", "b2b-gemm" and "b2b-conv". Raises KeyError
    for another name.
    """
    made: dict[str, dict[str, Workload]] = {
        "gemm": {f"{m}x{n}x{k}": GemmWorkload(m, n, k, epilogue=_BIAS_RELU) for m, n, k in _GEMMS},
        "conv": {
            f"n{b} {s}x{s} {c}->{k} {f}x{f} s{t}": _conv(s, c, k, f, t, b, _BIAS_RELU) for s, c, k, f, t, b in _CONVS
        },
        "epilogue": _epilogues(),
        **_pairs(),
    }
    return made[name]


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
