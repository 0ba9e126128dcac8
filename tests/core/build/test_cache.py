import os
import time

from hypothesis import given
from hypothesis import strategies as st

from core.build.cache import KernelCache, kernel_key, own_headers
from core.build.toolchain import Toolchain
from tests.core.tuning_stubs import fake_toolchain

texts = st.text(max_size=20)


def test_a_changed_header_of_ours_changes_the_key_only_of_who_includes_it(tmp_path):
    bolt = tmp_path / "bolt"
    bolt.mkdir()
    (bolt / "a.h").write_text('#include "b.h"\n#include <vector>\n')
    (bolt / "b.h").write_text("// one\n")
    (bolt / "c.h").write_text("")
    deep, other = '#include "bolt/a.h"\n', '#include "bolt/c.h"\n'
    before = own_headers(deep, tmp_path), own_headers(other, tmp_path)
    time.sleep(0.01)
    (bolt / "b.h").write_text("// two\n")
    after = own_headers(deep, tmp_path), own_headers(other, tmp_path)
    assert before[0] != after[0] and before[1] == after[1]


def test_headers_that_include_each_other_end(tmp_path):
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n')
    assert own_headers('#include "a.h"\n', tmp_path) != own_headers("", tmp_path)


@given(source=texts, flags=st.lists(texts, max_size=3), arch=texts, other=texts)
def test_everything_that_decides_the_code_is_in_the_key(tmp_path_factory, source, flags, arch, other):
    tools = fake_toolchain(tmp_path_factory.mktemp("t"))
    key = kernel_key(source, flags, arch, tools)
    assert key == kernel_key(source, flags, arch, tools)
    changes = [
        kernel_key(source + "x", flags, arch, tools),
        kernel_key(source, [*flags, "x"], arch, tools),
        kernel_key(source, flags, arch + "x", tools),
        *(kernel_key(source, flags, arch, _changed(tools, name)) for name in VERSIONS),
    ]
    assert key not in changes and len(set(changes)) == len(changes)


VERSIONS = ("nvcc_version", "host_version", "cutlass_version")


def _changed(tools: Toolchain, name: str) -> Toolchain:
    return Toolchain(**{**tools.__dict__, name: getattr(tools, name) + "x"})


def test_what_is_not_there_is_not_found(tmp_path):
    assert KernelCache(tmp_path).find("0" * 64) is None


def test_only_old_work_of_dead_processes_is_removed(tmp_path):
    work = KernelCache(tmp_path).folder / "building"
    dead = 2**22 + 1  # above the largest pid
    for name in (f"{dead}-old", f"{dead}-new", f"{os.getpid()}-old"):
        (work / name).mkdir()
        if name.endswith("old"):
            os.utime(work / name, (time.time() - 7200,) * 2)
    KernelCache(tmp_path)
    assert sorted(p.name for p in work.iterdir()) == sorted([f"{dead}-new", f"{os.getpid()}-old"])
