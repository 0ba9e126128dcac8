"""The kernel as text: PTX and machine code looked for, compiled on request, stopped, and told why not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.listing import Form, facts_line
from app.panels.source import NOTHING
from app.window import MainWindow
from core.build.cache import Entry
from core.build.listing import Mix
from core.errors import ToolchainError
from templates.emit import namespace_of
from tests.app.conftest import WAIT_MS
from tests.core.build.test_listing import DUMP, script
from tests.core.tuning_stubs import compiler_runs, fake_toolchain


@pytest.fixture
def shown(make_window: Callable[..., MainWindow], small_model: Path, qtbot: QtBot) -> MainWindow:
    """The source page over the first region of the small model, whose candidate is an estimate."""
    window = make_window(small_model)
    assert window.document is not None
    window.bottom.setCurrentWidget(window.source)
    assert window.source.empty.text() == NOTHING and not window.source.act.isVisible()
    qtbot.waitUntil(lambda: bool(window.document.estimates), timeout=WAIT_MS)  # type: ignore[union-attr]
    window.document.select_region(window.document.plan.regions[0])
    qtbot.waitUntil(lambda: "bolt_run_" in window.source.text.toPlainText(), timeout=WAIT_MS)
    return window


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler and a disassembler that are scripts; the folder holds the compiler's log and the dump."""
    toolchain = fake_toolchain(tmp_path)
    monkeypatch.setattr("core.build.toolchain.find_toolchain", lambda: toolchain)
    script(tmp_path, f"cat {tmp_path}/dump")
    return tmp_path


def show(window: MainWindow, form: Form) -> None:
    window.source.form.setCurrentIndex(window.source.form.findData(form))


def test_ptx_is_made_on_request(shown: MainWindow, tools: Path, qtbot: QtBot) -> None:
    source = shown.source
    show(shown, Form.PTX)
    qtbot.waitUntil(source.act.isVisible, timeout=WAIT_MS)
    assert "made on request" in source.empty.text() and source.act.text() == "Compile for NVIDIA H200"
    assert compiler_runs(tools) == 0
    qtbot.mouseClick(source.act, Qt.MouseButton.LeftButton)
    assert source.act.text() == "Stop"
    qtbot.waitUntil(lambda: bool(source.text.toPlainText()), timeout=WAIT_MS)
    assert not source.act.isVisible() and source.copy.isEnabled()
    show(shown, Form.CUDA)
    show(shown, Form.PTX)
    assert source.text.toPlainText() and compiler_runs(tools) == 1


def test_machine_code_comes_from_the_compiled_kernel_with_its_facts(
    shown: MainWindow, tools: Path, qtbot: QtBot
) -> None:
    source = shown.source
    show(shown, Form.SASS)
    qtbot.waitUntil(source.act.isVisible, timeout=WAIT_MS)
    assert "not compiled for NVIDIA H200 yet" in source.empty.text()
    assert source._kernel is not None
    (tools / "dump").write_text(DUMP.format(own=namespace_of(source._kernel), other="bolt_0000000000"))
    source.act.click()
    qtbot.waitUntil(lambda: "HGMMA" in source.text.toPlainText(), timeout=WAIT_MS)
    facts = source.facts.text()
    assert facts.startswith(
        "168 registers a thread, 12 bytes spilled, 32 B of static shared memory, 5 instructions (1 tensor core,"
    )
    assert "EXIT" not in source.text.toPlainText()


def test_without_the_disassembler_the_packages_are_named_and_ptx_still_offered(
    shown: MainWindow, tools: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(nvcc: Path) -> Path:
        raise ToolchainError("machine code is read by cuobjdump", "install the packages; PTX needs neither")

    monkeypatch.setattr("core.build.listing.find_cuobjdump", gone)
    show(shown, Form.SASS)
    qtbot.waitUntil(lambda: "cuobjdump. Install the packages" in shown.source.empty.text(), timeout=WAIT_MS)
    assert not shown.source.act.isVisible()
    show(shown, Form.PTX)
    qtbot.waitUntil(shown.source.act.isVisible, timeout=WAIT_MS)


def test_a_compilation_can_be_stopped_and_started_again(
    shown: MainWindow, tools: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = fake_toolchain(tools, 'case "$*" in *-ptx*) sleep 60;; esac')
    monkeypatch.setattr("core.build.toolchain.find_toolchain", lambda: slow)
    source = shown.source
    show(shown, Form.PTX)
    qtbot.waitUntil(source.act.isVisible, timeout=WAIT_MS)
    source.act.click()
    assert "Compiling for NVIDIA H200" in source.empty.text()
    source.act.click()
    qtbot.waitUntil(lambda: source.act.text().startswith("Compile for"), timeout=WAIT_MS)
    qtbot.waitUntil(lambda: not shown.background.busy, timeout=WAIT_MS)


def test_a_kernel_that_does_not_compile_says_so(
    shown: MainWindow, tools: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fake_toolchain(tools, 'echo "kernel0.cu(3): error: no such tile"; exit 2')
    monkeypatch.setattr("core.build.toolchain.find_toolchain", lambda: broken)
    show(shown, Form.SASS)
    qtbot.waitUntil(shown.source.act.isVisible, timeout=WAIT_MS)
    shown.source.act.click()
    qtbot.waitUntil(lambda: "error: no such tile" in shown.source.empty.text(), timeout=WAIT_MS)
    assert "does not compile for NVIDIA H200" in shown.source.empty.text()


def test_a_run_that_compiled_the_kernel_is_looked_at_again(shown: MainWindow, tools: Path, qtbot: QtBot) -> None:
    source = shown.source
    show(shown, Form.SASS)
    qtbot.waitUntil(source.act.isVisible, timeout=WAIT_MS)
    asked = len(source.listings._known)
    source.listings.look_again()
    assert asked == 1 and not source.listings._known


@pytest.mark.parametrize(
    ("form", "line", "groups"),
    [
        (Form.CUDA, "static int x = 4; // four", {0: "op.gemm", 15: "op.arithmetic", 18: "faint"}),
        (Form.PTX, "  @%p1 mov.u32 %r1, %tid.x;", {0: "op.gemm", 15: "op.pool", 20: "op.pool"}),
        (Form.SASS, "  /*0020*/  HGMMA.64x64x16 R24, R2 ;", {2: "faint", 12: "op.activation", 27: "op.pool"}),
    ],
)
def test_each_language_has_its_colours(shown: MainWindow, form: Form, line: str, groups: dict[int, str]) -> None:
    panel = shown.source
    panel.highlighter.form = form
    panel.text.setPlainText(line)
    found = {f.start: f.format.foreground().color() for f in panel.text.document().firstBlock().layout().formats()}
    assert {at: found.get(at) for at in groups} == {at: shown.theme[token] for at, token in groups.items()}


def test_facts_say_only_what_is_known() -> None:
    assert facts_line(None) == ""
    assert facts_line(Entry("k", "lib.so", 1.0)) == ""
    assert facts_line(Entry("k", "l.so", 1.0, 96, 0, 2048)) == (
        "96 registers a thread, nothing spilled, 2.00 KiB of static shared memory"
    )
    assert facts_line(None, Mix(1200, (("tensor core", 8),))) == "1,200 instructions (8 tensor core)"
