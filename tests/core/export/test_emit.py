"""The generated folder: names that try to escape, headers as C and C++, and a real build."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from core.build.toolchain import find_toolchain
from core.device import resolve_gpu
from core.errors import ExportError, ToolchainError
from core.export.emit import emit_sources
from core.export.exporter import GROWING, Origins, export, read_manifest
from core.export.memory import lifetimes, plan_memory
from core.export.verify import checked_manifest
from core.export.weights import write_weights
from core.fusion.planner import plan
from core.importer.load import load_graph
from core.tuner.choice import estimated
from templates import families
from templates.gpu import KNOWN_GPUS
from tests.core.export.models import Model

HOSTILE = [
    'x"; system("touch pwned"); //', "*/ #error in a comment /*", "line\n#error newline\r\n", "back\\slash\\",
    "??/\n", "%s%n", "${CMAKE_COMMAND}", "$(touch pwned)", "ünïcode ☃", "'''\nraise SystemExit\n'''", "{{ 7 * 7 }}",
]  # fmt: skip


def renamed(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Gives nodes, tensors and the graph hostile names."""
    fresh = iter(f"{n} {i}" for i in range(1000) for n in names)
    mapping: dict[str, str] = {"": ""}

    def new(name: str) -> str:
        if name not in mapping:
            mapping[name] = next(fresh)
        return mapping[name]

    model.graph.name = next(fresh)
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = new(value.name)
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.name = next(fresh)
        node.input[:] = [new(n) for n in node.input]
        node.output[:] = [new(n) for n in node.output]
    return model


def hostile_model() -> onnx.ModelProto:
    m = Model()
    y = m.op("MaxPool", m.op("Relu", m.conv(m.input(1, 3, 8, 8), 3, 8)), kernel_shape=[2, 2])
    y = m.op("Tanh", m.op("Concat", y, m.op("Exp", y), axis=1))
    return renamed(m.build(y, m.op("ReduceMean", y, m.const(np.array([1])))), HOSTILE)


def sm80_choices(found, gpu):
    only = {n: f for n, f in families().items() if n.startswith(("sm80", "direct"))}
    guesses = {k: estimated(r[0].workload, gpu, only) for k, r in found.workloads.items()}
    return {k: g for k, g in guesses.items() if g is not None}


def emitted(model: onnx.ModelProto, folder, name: str = "hostile"):
    from core.export.lower import lower

    gpu = KNOWN_GPUS["a100"]
    graph = load_graph(model.SerializeToString())
    found = plan(graph)
    program = lower(graph, found, sm80_choices(found, gpu))
    weights = write_weights(program, folder / f"{name}.safetensors")
    emit_sources(program, plan_memory(lifetimes(program)), weights, gpu, name, folder, "4.2.0")
    return graph


def test_no_name_of_the_model_reaches_a_source_unescaped(tmp_path):
    emitted(hostile_model(), tmp_path)
    for path in tmp_path.rglob("*"):
        if path.suffix in (".cu", ".h", ".c", ".txt", ".map", ".py") and "bolt" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert text.isascii(), path
            for trap in ("pwned", "#error", "CMAKE_COMMAND}", "SystemExit"):
                lines = [line for line in text.splitlines() if trap in line]
                assert all('"' in line or "'" in line for line in lines), (path, lines)
            assert "touch pwned" not in text or path.suffix in (".cu", ".py")


@pytest.mark.parametrize("compiler", [["gcc", "-std=c99", "-x", "c"], ["g++", "-std=c++17", "-x", "c++"]])
def test_the_header_is_c_and_cpp(tmp_path, compiler):
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    emitted(hostile_model(), tmp_path)
    flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{tmp_path / 'include'}"]
    subprocess.run([*compiler, *flags, str(tmp_path / "include" / "hostile.h")], check=True)
    if compiler[0] == "gcc":
        subprocess.run([*compiler, *flags, str(tmp_path / "examples/example.c")], check=True)


def test_the_python_caller_holds_the_names_as_literals(tmp_path):
    graph = emitted(hostile_model(), tmp_path)
    code = (
        f"import runpy; m = runpy.run_path({str(tmp_path / 'hostile.py')!r}); print(ascii([p[0] for p in m['INPUTS']]))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == ascii(list(graph.inputs))
    assert not (tmp_path / "pwned").exists()


@pytest.mark.compiles
def test_a_hostile_model_builds_and_tells_its_names(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BOLT_CACHE", str(tmp_path_factory.mktemp("cache")))
    graph = load_graph(hostile_model().SerializeToString())
    found, gpu = plan(graph), resolve_gpu("a100")
    out = tmp_path / "out"
    data = export(
        graph, found, sm80_choices(found, gpu.spec), gpu, out, find_toolchain(), Origins("model.onnx"), name="a/../b"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert data == read_manifest(out) and data["name"] == "a_b" and data["estimated"] == len(list(found.workloads))
    library = ctypes.CDLL(str(out / "liba_b.so"))
    library.a_b_input_name.restype = library.a_b_output_name.restype = library.a_b_last_error.restype = ctypes.c_char_p
    assert library.a_b_input_name(0).decode() == graph.inputs[0]
    assert [library.a_b_output_name(i).decode() for i in range(2)] == list(graph.outputs)
    handle = ctypes.c_void_p()
    if library.a_b_create(ctypes.byref(handle), None):  # no GPU, or another one
        assert b"a_b: " in library.a_b_last_error(None)
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", str(out / "liba_b.so")], check=True, capture_output=True, text=True
    )
    assert all(line.split()[-1].startswith("a_b_") for line in exported.stdout.splitlines())


def small_export(out, **changes):
    m = Model()
    graph = load_graph(m.build(m.op("Relu", m.input(2, 3))).SerializeToString())
    gpu = resolve_gpu("a100")
    return export(graph, plan(graph), {}, gpu, out, find_toolchain(), Origins("m"), **changes)


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ExportError, match="no exported library"):
        small_export(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_failing_build_leaves_nothing_behind(tmp_path, monkeypatch):
    def broken(*arguments, **named):
        raise ToolchainError("plan.cu does not compile: error: no")

    monkeypatch.setattr("core.export.exporter.build_library", broken)
    with pytest.raises(ToolchainError):
        small_export(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_second_export_replaces_the_first_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )
    small_export(tmp_path / "out", name="first")
    small_export(tmp_path / "out", name="second")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "libfirst.so").exists() and (tmp_path / "out" / "libsecond.so").exists()


@pytest.mark.parametrize("where", ["beside", "mount point", "working folder"])
def test_what_the_user_put_into_an_export_stays(tmp_path, monkeypatch, where):
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )
    out = tmp_path / "out"
    (out / GROWING).mkdir(parents=True)  # left by an export that was killed
    number = out.stat().st_ino
    if where == "mount point":
        monkeypatch.setattr("core.export.exporter.os.path.ismount", lambda path: path == out)
    if where == "working folder":
        monkeypatch.chdir(out)
    small_export(out, name="first")
    (out / "src" / "mine.cu").write_text("precious")
    (out / "notes.txt").write_text("precious")
    small_export(out, name="second")
    assert checked_manifest(out)["name"] == "second"
    assert (out / "src" / "mine.cu").exists() and (out / "notes.txt").exists()
    assert not list(out.rglob("*first*")) and [p.name for p in tmp_path.iterdir()] == ["out"]
    if where != "beside":
        assert out.stat().st_ino == number and [p.name for p in out.glob(".*")] == [GROWING]


@pytest.mark.parametrize("where", ["beside", "mount point"])
def test_an_export_that_cant_be_put_into_place_leaves_the_earlier_one(tmp_path, monkeypatch, where):
    monkeypatch.setattr(
        "core.export.exporter.build_library", lambda folder, name, *rest: (folder / f"lib{name}.so").touch()
    )
    out = tmp_path / "out"
    small_export(out, name="first")
    if where == "mount point":
        monkeypatch.setattr("core.export.exporter.os.path.ismount", lambda path: path == out)
    rename = os.rename

    def failing(source, target):
        if Path(source).name in ("export", "libsecond.so"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr("core.export.exporter.exchange", lambda one, other: False)
    monkeypatch.setattr("core.export.exporter.os.rename", failing)
    with pytest.raises(ExportError, match="No space left"):
        small_export(out, name="second")
    assert checked_manifest(out)["name"] == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["out"] and not list(out.glob(".*"))


def test_a_name_no_folder_can_have_is_one_line(tmp_path):
    with pytest.raises(ExportError, match="File name too long"):
        small_export(tmp_path / ("n" * 256))


def test_a_full_disk_is_one_line_and_no_folder(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("core.export.exporter.write_shared_weights", full)
    with pytest.raises(ExportError, match="No space left"):
        small_export(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_operators_without_a_kernel_are_all_named():
    from core.export.lower import lower

    m = Model()
    x = m.input(1, 3, 4, 4)
    y = m.op("NonZero", x)
    graph = load_graph(m.build(m.op("Det", m.op("Relu", x)), y).SerializeToString())
    with pytest.raises(ExportError, match=r"2 nodes.*NonZero 'n0'.*Det 'n2'"):
        lower(graph, plan(graph), {})
