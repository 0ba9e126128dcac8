"""Which attention kernels are offered for what, and one of each family through nvcc: no spills, no wgmma serialized."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from core.build.nvcc import base_command, parse_ptxas, run
from core.build.toolchain import find_toolchain
from core.paths import INCLUDE
from core.search.rank import rank
from templates import families
from templates.attention import AttentionWorkload, MaskKind
from templates.gpu import KNOWN_GPUS, GpuSpec
from templates.types import DType
from tests.templates.attention_cases import attention

H200, A100, T4 = (KNOWN_GPUS[n] for n in ("h200", "a100", "t4"))
BERT = attention(32, 12, 40, 40, 64, mask=MaskKind.ADD, mask_strides=(40, 0, 0))
LONG = attention(4, 16, 4096, 4096, 128, causal=True)


def names(work: AttentionWorkload, gpu: GpuSpec) -> list[str]:
    return [r.kernel.family for r in rank(work, gpu).candidates]


def test_every_attention_has_a_kernel_and_long_ones_the_hopper_one_first() -> None:
    assert names(LONG, H200)[0] == "sm90_attention" and "sm80_attention" in names(LONG, H200)
    assert names(BERT, H200)[0] == "sm80_attention", "one tile of 40 queries: small blocks, many on an SM"
    for gpu in (A100, T4):
        assert set(names(LONG, gpu)) == {"sm80_attention"}
    odd = attention(2, 3, 77, 77, 33)
    assert set(names(odd, H200)) == {"sm80_attention"}
    assert not names(replace(BERT, dtype=DType.BF16), T4)


def test_masks_are_numbered_as_in_the_header() -> None:
    header = (INCLUDE / "bolt" / "attention.cuh").read_text()
    listed = re.search(r"enum class Mask : int \{([^}]*)\}", header)
    assert listed is not None
    numbers = {name.lower(): int(number) for name, number in re.findall(r"k(\w+) = (\d+)", listed[1])}
    assert numbers == {str(kind).replace("_", ""): kind.code for kind in MaskKind}


def test_reasons_are_told() -> None:
    refused = dict(rank(attention(2, 3, 77, 77, 33), H200).refused)
    assert refused["sm90_attention"] == "queries have a stride of 99, TMA's are multiples of 8 elements"
    assert "more than 256" in dict(rank(attention(1, 1, 64, 64, 264), H200).refused)["sm80_attention"]
    best = rank(LONG, H200).candidates[0]
    assert "steps of" in best.score.why and "bound by arithmetic" in best.score.why
    assert any("shared memory" in why for _, why in rank(LONG, H200).illegal)


@pytest.mark.compiles
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "tile", "work", "gpu"),
    [("sm80_attention", "64x64_s2", replace(LONG, mask=MaskKind.KEEP), A100),
     ("sm90_attention", "128x64_s2_turns", attention(4, 16, 4096, 4096, 64, causal=True), H200)],
)  # fmt: skip
def test_a_kernel_of_each_family_compiles(
    family: str, tile: str, work: AttentionWorkload, gpu: GpuSpec, tmp_path: Path
) -> None:
    kernel = next(k for k in families()[family].kernels(work, gpu) if k.stem.startswith(f"{tile}_d"))
    assert families()[family].illegal(kernel, work, gpu) is None
    source = tmp_path / "kernel.cu"
    source.write_text(families()[family].source(kernel))
    flags = families()[family].flags(kernel, gpu)
    command = [*base_command(find_toolchain()), *flags, "-Xptxas=-v", "-cubin", source, "-o", tmp_path / "kernel.cubin"]
    ran = run(command, tmp_path)
    assert ran.status == 0, ran.log[-3000:]
    [usage] = parse_ptxas(ran.log)
    assert usage.spill_bytes == 0 and "wgmma" not in ran.log and "warning" not in ran.log, ran.log
