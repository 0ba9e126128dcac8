import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from core.build import cache
from core.build.artifact import BuiltKernel
from core.build.builder import Builder
from core.errors import ToolchainError
from core.measure.measurement import Failure, Stage
from core.paths import ROOT
from templates.family import Kernel
from tests.core.tuning_stubs import H200, StubFamily, compiler_runs, fake_toolchain, gemm, kernels_of

FAMILY = StubFamily()


def builder(tmp_path: Path, family: StubFamily = FAMILY, jobs: int = 2, extra: str = "", version: str = "13.0.88"):
    toolchain = fake_toolchain(tmp_path, extra, version)
    return Builder(toolchain, H200, tmp_path / "cache", jobs=jobs, families_by_name={family.name: family})


def test_builds_every_kernel_once_and_reads_ptxas(tmp_path):
    kernels = kernels_of(FAMILY)
    done = dict(builder(tmp_path).build([*kernels, *kernels]))
    assert set(done) == set(kernels)
    for kernel, built in done.items():
        assert isinstance(built, BuiltKernel) and not built.cached
        assert kernel.name in built.library.read_text()
        assert (built.registers, built.spill_bytes, built.smem_bytes) == (168, 12, 32)


def test_a_second_builder_compiles_nothing(tmp_path):
    kernels = kernels_of(FAMILY)
    list(builder(tmp_path).build(kernels))
    runs = compiler_runs(tmp_path)
    again = builder(tmp_path)
    assert all(k in again for k in kernels) and again.seconds(kernels) == 0
    assert all(b.cached for _, b in again.build(kernels))
    assert compiler_runs(tmp_path) == runs


def test_another_compiler_version_compiles_again(tmp_path):
    kernels = kernels_of(FAMILY)
    list(builder(tmp_path).build(kernels))
    assert kernels[0] not in builder(tmp_path, version="13.1.10")


def test_a_bad_kernel_costs_only_itself(tmp_path):
    family = replace(FAMILY, tiles=(32, 64, 13, 128))
    done = dict(builder(tmp_path, family, jobs=1).build(kernels_of(family)))
    failed = [k for k, b in done.items() if isinstance(b, Failure)]
    assert [k["tile"] for k in failed] == [13] and len(done) == 4
    failure = done[failed[0]]
    assert failure.stage is Stage.COMPILE and 'identifier "BAD" is undefined' in failure.reason
    assert "1 error detected" in failure.log
    runs = compiler_runs(tmp_path)
    assert runs <= 3  # all together, then the good ones together and the bad one alone
    assert isinstance(dict(builder(tmp_path, family).build(failed))[failed[0]], Failure)
    assert compiler_runs(tmp_path) == runs  # the compiler's verdict is kept


def test_a_killed_compiler_is_not_a_verdict(tmp_path):
    kernel = kernels_of(FAMILY)[0]
    extra = "echo \"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\"; exit 9"
    done = dict(builder(tmp_path, extra=extra).build([kernel]))
    assert "signal 9" in done[kernel].reason
    assert isinstance(dict(builder(tmp_path).build([kernel]))[kernel], BuiltKernel)


@pytest.mark.parametrize("damage", ["truncate", "overwrite", "remove", "index"])
def test_a_damaged_entry_is_rebuilt(tmp_path, damage):
    kernel = kernels_of(FAMILY)[0]
    built = dict(builder(tmp_path).build([kernel]))[kernel]
    if damage == "truncate":
        built.library.write_bytes(built.library.read_bytes()[:5])
    elif damage == "overwrite":
        built.library.write_bytes(b"x" * built.library.stat().st_size)
    elif damage == "remove":
        built.library.unlink()
    else:
        (index,) = (tmp_path / "cache/kernels/index").glob("*/*.json")
        index.write_text('{"kernel": ')
    again = dict(builder(tmp_path).build([kernel]))[kernel]
    assert isinstance(again, BuiltKernel) and not again.cached
    assert kernel.name in again.library.read_text()


def test_a_missing_compiler_is_one_line(tmp_path):
    work = builder(tmp_path)
    (tmp_path / "nvcc").unlink()
    with pytest.raises(ToolchainError, match=r"nvcc can't be started.*doctor"):
        list(work.build(kernels_of(FAMILY)))


def test_a_full_disk_is_one_line_and_leaves_no_entry(tmp_path):
    work = builder(tmp_path, extra='cat "$folder"/kernel*.cu > /dev/full || exit 1')
    with pytest.raises(ToolchainError, match=r"can't be written.*BOLT_CACHE"):
        list(work.build(kernels_of(FAMILY)))
    assert not list((tmp_path / "cache/kernels/index").glob("*/*.json"))


def _limited(tmp_path: Path, queue: "multiprocessing.Queue[str]") -> None:
    import resource

    family = replace(FAMILY, tiles=(32,))
    work = builder(tmp_path, family, extra='head -c 100000 /dev/zero > "$out"; exit $?')
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        list(work.build(kernels_of(family)))
        queue.put("built")
    except ToolchainError as error:
        queue.put(str(error))


def test_a_file_size_limit_is_told_as_such(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_limited, args=(tmp_path, queue))
    process.start()
    told = queue.get(timeout=60)
    process.join()
    assert "can't be written" in told


def test_an_unwritable_cache_is_one_line(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ToolchainError, match="BOLT_CACHE"):
        builder(tmp_path)


def test_closing_stops_the_compilers(tmp_path):
    family = SlowFamily()
    work = builder(tmp_path, family, extra="echo $$ >> " + str(tmp_path / "pids"))
    threading.Timer(0.5, work.close).start()
    assert list(work.build(kernels_of(family))) == []
    pids = [int(p) for p in (tmp_path / "pids").read_text().split()]
    assert pids and not any(_runs(p) for p in pids)
    assert not list((tmp_path / "cache/kernels/building").iterdir())


def test_closing_the_iterator_stops_the_compilers(tmp_path):
    family = replace(SlowFamily(), tiles=(32, 64, 128, 256), seconds=(1.0, 1.0))
    work = builder(tmp_path, family, jobs=2, extra="echo $$ >> " + str(tmp_path / "pids"))
    results = work.build(kernels_of(family))
    assert next(results)
    results.close()
    assert not any(_runs(int(p)) for p in (tmp_path / "pids").read_text().split())


class SlowFamily(StubFamily):
    """Every kernel but tile 32 takes a minute."""

    def source(self, kernel: Kernel) -> str:
        return super().source(kernel) + ("" if kernel["tile"] == 32 and len(self.tiles) == 4 else "// SLOW\n")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


def _build_all(tmp_path: Path, queue: "multiprocessing.Queue[list[bool]]") -> None:
    done = dict(builder(tmp_path).build(kernels_of(FAMILY)))
    queue.put([isinstance(b, BuiltKernel) and b.library.exists() for b in done.values()])


def test_two_processes_share_a_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    builder(tmp_path)  # writes the compiler before both start
    processes = [context.Process(target=_build_all, args=(tmp_path, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    results = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert results == [[True] * 4] * 2
    assert all(b.cached for _, b in builder(tmp_path).build(kernels_of(FAMILY)))


def test_work_of_a_killed_process_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_LEFT_OVER_S", 0.0)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_build_slowly, args=(tmp_path,))
    process.start()
    pids = tmp_path / "pids"
    deadline = time.monotonic() + 60
    while not pids.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for pid in pids.read_text().split():
        os.killpg(int(pid), signal.SIGKILL)
    assert list((tmp_path / "cache/kernels/building").iterdir())
    assert len(dict(builder(tmp_path).build(kernels_of(FAMILY)))) == 4
    assert not list((tmp_path / "cache/kernels/building").iterdir())


def _build_slowly(tmp_path: Path) -> None:
    work = builder(tmp_path, SlowFamily(), extra="echo $$ >> " + str(tmp_path / "pids"))
    list(work.build(kernels_of(SlowFamily(tiles=(64,)))))


def test_the_epilogue_is_part_of_the_key(tmp_path):
    work = builder(tmp_path)
    plain = kernels_of(FAMILY, gemm(epilogue=type(gemm().epilogue)()))[0]
    assert work.key(plain) != work.key(kernels_of(FAMILY)[0])


def test_the_compiler_ends_with_a_builder_that_is_killed(tmp_path):
    """kill -9 runs no cleaning up; a compile of minutes would go on and take the memory of the next one."""
    program = """
import sys, threading
from pathlib import Path
from core.build.nvcc import run
print("running", flush=True)
run(["/bin/sh", "-c", "echo $$ > pid; sleep 600 & sleep 600"], Path(sys.argv[1]), threading.Event())
"""
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    pid = tmp_path / "pid"
    assert until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    group = int(pid.read_text())
    process.kill()
    process.wait()
    process.stdout.close()
    assert until(lambda: not alive(group)), "the compiler outlives its builder"


def until(condition, seconds=30.0):
    """Whether the condition comes true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def alive(group):
    """Whether a process of the group runs (one that ended and is not waited for does not)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                return True
    return False
