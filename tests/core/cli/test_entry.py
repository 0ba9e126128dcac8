"""The entry point: which interpreter runs, what is told before set-up, and failures nobody foresaw."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import core.cli
from core.cli import doctor, setup
from core.cli import test as test_verb
from core.paths import ROOT


def test_help_lists_only_verbs_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        core.cli.run(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for verb in core.cli.VERBS:
        assert f"\n  {verb} " in text
        assert (ROOT / "core" / "cli" / f"{verb}.py").is_file()


def test_a_mistyped_verb_is_bad_usage_and_not_a_window(capsys: pytest.CaptureFixture[str]) -> None:
    assert core.cli.run(["inspct"]) == 2
    assert "'inspct' is no verb, no file and no built-in model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "a\nb"), "error: 'a\\nb': No such file or directory\n"),
        (OSError(28, "No space left on device"), "error: No space left on device\n"),
        (MemoryError(), "error: this machine's memory is full; close other programs or take a smaller batch\n"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    assert core.cli.run(["doctor"]) == 1
    assert capsys.readouterr().err == said


def test_tests_before_setup_name_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test_verb.importlib.util, "find_spec", lambda name: None)
    assert core.cli.run(["test"]) == 1
    assert capsys.readouterr().err == ("error: ruff, mypy, pytest not installed; run `python3 main.py setup test`\n")


def test_setup_names_every_system_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(library: str) -> None:
        raise OSError(library)

    monkeypatch.setattr(setup.ctypes, "CDLL", missing)
    monkeypatch.setattr(setup.shutil, "which", lambda program: None)
    found = setup.missing_system_packages()
    assert found[0] == "g++" and found[-2:] == ["xvfb", "xauth"]
    assert {"libgl1", "libxcb-cursor0"} <= set(found) and len(found) == len(set(found))


def _checkout(tmp_path: Path, environment: str) -> Path:
    """A copy of main.py whose environment's interpreter is the script given, and whose core says which ran it."""
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "cli.py").write_text("def run(argv):\n    print('here', argv)\n    return 0\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(environment)
    python.chmod(0o755)
    return Path(shutil.copy(ROOT / "main.py", tmp_path))


def _bare(main: Path, *argv: str) -> str:
    """main.py run by an interpreter that has no packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(main), *argv], check=True, capture_output=True, text=True, timeout=30
    ).stdout


def test_a_bare_interpreter_hands_over_to_the_environment(tmp_path: Path) -> None:
    main = _checkout(tmp_path, '#!/bin/sh\necho environment "$@"\n')
    assert _bare(main, "inspect", "mlp") == f"environment {main} inspect mlp\n"


def test_an_environment_half_installed_does_not_hand_over_to_itself(tmp_path: Path) -> None:
    main = _checkout(tmp_path, "")
    text = main.read_text()
    code = f"import sys; sys.prefix = {str(main.parent / '.venv')!r}; sys.path.insert(0, {str(tmp_path)!r})"
    main.write_text(text.replace("import importlib.util\n", f"import importlib.util\n{code}\n", 1))
    assert _bare(main, "inspect") == "here ['inspect']\n"


def test_a_closed_terminal_is_outlived_under_nohup_and_handlers_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang_up(*_: object) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    monkeypatch.setattr(doctor, "run", hang_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert core.cli.run(["doctor"]) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert core.cli.run(["doctor"]) == 130
    assert signal.getsignal(signal.SIGHUP) is before


ESCAPES = "\x1b[31mred\x1b]0;title\x07 [bold]x[/bold]\r\n\t\u202e\0 \x9b2J"


def test_no_name_of_a_model_drives_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in ("x" + ESCAPES, "y"))
    nodes = [
        helper.make_node("Relu", [x.name], ["m" + ESCAPES], name=ESCAPES),
        helper.make_node("Own" + ESCAPES, ["m" + ESCAPES], ["y"], name=ESCAPES + "2", **{"a" + ESCAPES: 1}),
    ]
    path = tmp_path / "\x1b[2J\udcff.onnx"
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph(nodes, ESCAPES, [x], [y]), opset_imports=opsets)
    path.write_bytes(model.SerializeToString())
    assert core.cli.run(["inspect", str(path), "--graph"]) == 0
    assert core.cli.run(["export", str(path), "--gpu", "h200", "-o", str(tmp_path / "out")]) == 1
    assert core.cli.run(["inspect", str(path) + ESCAPES]) == 1
    out, err = capsys.readouterr()
    assert "Relu" in out and "\\x1b" in out and err.count("\n") == 2
    unseen = {c for c in out + err if not c.isprintable()}
    assert unseen == {"\n"}, unseen


def test_our_own_colours_reach_the_terminal() -> None:
    assert core.cli.shown("\x1b[1mbold\x1b[0m\n\x1b[2J") == "\x1b[1mbold\x1b[0m\n\\x1b[2J"


def test_a_terminal_that_is_not_utf8_is_no_reason_to_fail() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "inspect", "mlp"], check=False, capture_output=True, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0 and b"fc1 relu1" in done.stdout and not done.stderr
