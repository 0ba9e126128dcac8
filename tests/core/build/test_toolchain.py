import os
import stat
from pathlib import Path

import pytest

from core.build import toolchain as module
from core.build.machine import cores, free_memory
from core.build.nvcc import first_error, parse_ptxas, without_folders
from core.build.toolchain import OLDEST_CUDA, find_cutlass, find_host_compiler, find_nvcc, find_toolchain
from core.errors import ToolchainError


def fake_nvcc(folder: Path, version: str = "13.1.5") -> Path:
    path = folder / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release 13.1, V{version}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No packages, no toolkit, nothing on PATH but what a test adds."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(module, "SYSTEM_NVCC", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("BOLT_NVCC", "CUDA_HOME", "CUDA_PATH", "NVCC_CCBIN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_this_checkout_has_a_toolchain():
    found = find_toolchain()
    assert (found.cutlass / "include/cutlass/cutlass.h").is_file() and found.cutlass_version.startswith("4.")
    assert all(d.is_dir() for d in found.include_dirs + found.library_dirs)
    assert tuple(map(int, found.nvcc_version.split(".")[:2])) >= OLDEST_CUDA


def test_nothing_found_says_what_to_run(bare):
    for find in (find_nvcc, find_host_compiler, find_cutlass):
        with pytest.raises(ToolchainError, match=r"main\.py setup") as told:
            find()
        assert "\n" not in str(told.value)


def test_nvcc_from_path_serves(bare):
    path = fake_nvcc(bare)
    assert find_nvcc() == (path, "13.1.5")


def test_nvcc_from_cuda_home_serves(bare, monkeypatch):
    path = fake_nvcc(bare / "toolkit")
    monkeypatch.setenv("CUDA_HOME", str(bare / "toolkit"))
    assert find_nvcc() == (path, "13.1.5")


def test_an_old_nvcc_is_passed_over_and_named(bare, monkeypatch):
    fake_nvcc(bare, "11.8.89")
    with pytest.raises(ToolchainError, match=r"CUDA 11\.8\.89, older than 12\.8"):
        find_nvcc()
    newer = fake_nvcc(bare / "toolkit")
    monkeypatch.setattr(module, "SYSTEM_NVCC", newer)
    assert find_nvcc()[0] == newer


def test_a_named_nvcc_goes_first(bare, monkeypatch):
    fake_nvcc(bare)
    mine = fake_nvcc(bare / "mine", "12.9.1")
    monkeypatch.setenv("BOLT_NVCC", str(mine))
    assert find_nvcc() == (mine, "12.9.1")
    monkeypatch.setenv("BOLT_NVCC", str(bare / "absent"))
    with pytest.raises(ToolchainError, match="BOLT_NVCC names"):
        find_nvcc()


def test_an_nvcc_that_does_not_run_is_passed_over(bare):
    fake_nvcc(bare).write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ToolchainError, match="does not run"):
        find_nvcc()


def test_a_pip_toolkit_gets_its_library_folder(bare, monkeypatch):
    root = bare / "nvidia" / "cu13"
    path = fake_nvcc(root)
    (root / "lib").mkdir()
    (root / "lib" / "libcudart_static.a").touch()
    spec = type("Spec", (), {"submodule_search_locations": [str(bare / "nvidia")]})
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)
    assert find_nvcc() == (path, "13.1.5") and module._library_dirs(path) == (root / "lib",)


LOGS = {
    "front end": ('a.cu(12): error: identifier "x" is undefined\n\n1 error detected in "a.cu".', "a.cu(12)"),
    "numbered": ("a.cu(3): warning #177-D: unused\na.cu(9): error #20: bad\n", "a.cu(9): error #20"),
    "ptxas": ("ptxas error   : Entry function 'k' uses too much shared data\nptxas fatal   : aborted", "ptxas error"),
    "driver": ("nvcc fatal   : Unsupported gpu architecture 'compute_75'", "Unsupported gpu architecture"),
    "host": ("In file included from x:\n/y.h:3:10: fatal error: z.h: No such file or directory\nended.", "z.h"),
    "link": ("/usr/bin/ld: cannot find -lcudart\ncollect2: error: ld returned 1", "cannot find -lcudart"),
    "signal": ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "signal 9"),
    "other": ("something odd\n\n", "something odd"),
}


@pytest.mark.parametrize("log, told", LOGS.values(), ids=LOGS)
def test_the_first_error_line_is_the_cause(log, told):
    assert told in first_error(log) and "\n" not in first_error(log)


def test_a_silent_death_is_told():
    assert "SIGKILL" in first_error("", -9)
    assert "status 3" in first_error("", 3)


def test_ptxas_figures_are_read():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1av' for 'sm_90a'
ptxas info    : Function properties for _Z1av
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1bv' for 'sm_90a'
ptxas info    : Function properties for _Z1bv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers"""
    a, b = parse_ptxas(log)
    assert (a.function, a.registers, a.spill_bytes, a.smem_bytes) == ("_Z1av", 255, 28, 1024)
    assert (b.function, b.registers, b.spill_bytes, b.smem_bytes) == ("_Z1bv", 32, 0, 0)


def test_free_memory_minds_the_cgroup(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   8000 kB\n")
    assert free_memory(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    (tmp_path / "memory.stat").write_text("anon 40\nfile 60\ninactive_file 50\nactive_file 10\n")
    assert free_memory(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("4096\n")
    assert free_memory(meminfo, tmp_path) == 4096 - 50, "files that nobody uses count as free"


def test_cores_mind_the_cgroups_quota(tmp_path):
    everything = len(os.sched_getaffinity(0))
    assert cores(tmp_path) == everything
    for quota, expected in {"max 100000": everything, "150000 100000": min(everything, 2), "1000 100000": 1}.items():
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
        assert cores(tmp_path) == expected


def test_a_log_for_others_names_no_folder_of_this_machine():
    log = (
        "/home/me/my env/site/cutlass/include/cutlass/gemm/a.h(262): error: x / y // z, a/b/c\n"
        '  at "/home/me/.cache/b/1278-x/kernel0.cu" line 3\nIn file included from /usr/include/c++/12/cmath:47,\n'
    )
    include = Path("/home/me/my env/site/cutlass/include")
    assert without_folders(log, (include.parent, include)) == (
        'cutlass/gemm/a.h(262): error: x / y // z, a/b/c\n  at "kernel0.cu" line 3\nIn file included from cmath:47,\n'
    )
