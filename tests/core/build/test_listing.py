"""Machine code as text: which functions are shown, what is counted, and what is said where the tools are not."""

import stat
import threading
from pathlib import Path

import pytest

from core.build.builder import Builder
from core.build.listing import Mix, find_cuobjdump, mix_of, only_of, ptx_of, sass_of
from core.build.toolchain import find_toolchain
from core.errors import Cancelled, ToolchainError
from templates.emit import namespace_of
from tests.core.tuning_stubs import H200, StubFamily, fake_toolchain, kernels_of

KERNEL, OTHER = kernels_of(StubFamily())[:2]
# As cuobjdump prints it: two functions, each instruction with its encoding in two lines.
DUMP = """
Fatbin elf code:
================
arch = sm_90a
\tcode for sm_90a
\t\tFunction : _ZN4bolt3runIN{own}6ConfigEEEvv
\t.headerflags\t@"EF_CUDA_ACCELERATORS"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                      /* 0x00000a00ff017b82 */
                                                                               /* 0x000fe20000000800 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR8][R2.64] ;            /* 0x0000000802040981 */
                                                                               /* 0x000ea2000c1e1d00 */
        /*0020*/                   HGMMA.64x64x16.F32 R24, gdesc[UR4], RZ ;    /* 0x00e0000004187df0 */
                                                                               /* 0x000fe2000c7008ff */
        /*0030*/             @!UP1 UTMALDG.4D [UR8], [UR4], desc[UR6] ;        /* 0x00000608040075b4 */
                                                                               /* 0x0001e20008019000 */
        /*0040*/                   STL [R1], R0 ;                              /* 0x0000000001007387 */
                                                                               /* 0x000fe20000100800 */
        /*0050*/                   NOP;                                        /* 0x0000000000007918 */
                                                                               /* 0x000fc00000000000 */
\t\t..........

\t\tFunction : _ZN4bolt3runIN{other}6ConfigEEEvv
        /*0000*/                   EXIT ;                                      /* 0x000000000000794d */
                                                                               /* 0x000fea0003800000 */
\t\t..........
"""


def dump() -> str:
    return DUMP.format(own=namespace_of(KERNEL), other=namespace_of(OTHER))


def script(folder: Path, text: str) -> Path:
    path = folder / "cuobjdump"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_only_the_kernels_own_functions_are_shown_without_encodings() -> None:
    text = only_of(dump(), namespace_of(KERNEL))
    assert text.splitlines()[0] == f"// _ZN4bolt3runIN{namespace_of(KERNEL)}6ConfigEEEvv"
    assert "HGMMA.64x64x16.F32" in text and "EXIT" not in text
    assert "0x00000a00ff017b82" not in text and "headerflags" not in text and ".........." not in text


def test_a_library_of_a_kernel_without_a_namespace_is_shown_whole() -> None:
    assert {"HGMMA", "EXIT"} <= {w.partition(".")[0] for w in only_of(dump(), "bolt_unknown").split()}


def test_instructions_are_counted_by_kind() -> None:
    found = mix_of(only_of(dump(), namespace_of(KERNEL)))
    kinds = (("tensor core", 1), ("TMA and bulk copy", 1), ("global memory", 1), ("local memory", 1))
    assert found == Mix(5, kinds)


def test_the_tool_reads_the_library(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text(dump())
    tool = script(tmp_path, f'[ "$1" = -sass ] && [ "$2" = /x/lib.so ] && cat {tmp_path}/dump')
    assert "HGMMA" in sass_of(Path("/x/lib.so"), KERNEL, tool)


def test_a_tool_that_can_not_read_it_and_an_empty_library_are_lines(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"can't read lib\.so: cuobjdump fatal"):
        sass_of(Path("lib.so"), KERNEL, script(tmp_path, "echo cuobjdump fatal : no such file; exit 1"))
    with pytest.raises(ToolchainError, match="holds no function"):
        sass_of(Path("lib.so"), KERNEL, script(tmp_path, "exit 0"))


def test_the_tool_is_found_beside_nvcc_or_on_the_path_and_else_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match="nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"):
        find_cuobjdump(tmp_path / "nvcc")
    tool = script(tmp_path, "exit 0")
    assert find_cuobjdump(tmp_path / "nvcc") == tool
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_cuobjdump(Path("/elsewhere/nvcc")) == tool


def test_ptx_is_asked_for_by_the_virtual_architecture(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    toolchain = fake_toolchain(tmp_path, f'echo "$@" > {asked}')
    text = ptx_of(KERNEL, "// a kernel\n", ("-gencode=arch=compute_90a,code=sm_90a", "-DSTUB"), toolchain)
    assert text == "// a kernel\n"
    words = asked.read_text().split()
    assert {"-ptx", "-DSTUB", "-gencode=arch=compute_90a,code=compute_90a"} <= set(words)
    with pytest.raises(ToolchainError, match=r'does not compile to PTX: .*identifier "BAD"'):
        ptx_of(KERNEL, "// BAD\n", (), toolchain)


def test_what_is_cancelled_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        ptx_of(KERNEL, "// SLOW\n", (), fake_toolchain(tmp_path), stop)
    family = StubFamily()
    builder = Builder(fake_toolchain(tmp_path), H200, tmp_path, 1, {family.name: family}, stop)
    assert list(builder.build([KERNEL])) == []


def test_nvcc_gives_the_ptx_of_a_kernel() -> None:
    from templates import families
    from templates.gpu import KNOWN_GPUS
    from templates.workload import parse_workload

    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    family, gpu = families()["sm90_direct"], KNOWN_GPUS["h200"]
    workload = parse_workload("conv 32x56x56x64 k64x3x3 p1.1.1.1 s1.1 d1.1 g1 f16.f32 bias+relu")
    kernel = next(iter(family.kernels(workload, gpu)))
    text = ptx_of(kernel, family.source(kernel), family.flags(kernel, gpu), toolchain)
    assert ".target sm_90a" in text and namespace_of(kernel) in text and "wgmma.mma_async" in text
