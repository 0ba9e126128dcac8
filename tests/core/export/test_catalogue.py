"""The table of operators says what the code does."""

from core.export.catalogue import WRITTEN_OUT, lines, markdown
from core.export.operators import ON_THE_HOST, SUPPORTED
from core.graph.passes.decompose import RULES
from core.paths import ROOT


def test_the_file_is_up_to_date():
    kept = (ROOT / "resources/operators.md").read_text(encoding="utf-8")
    assert kept == markdown(), "run: python -m core.export.catalogue > resources/operators.md"


def test_it_names_every_operator_once():
    names = [line.op for line in lines()]
    assert names == sorted(set(names)) and {*SUPPORTED, *RULES, *ON_THE_HOST} <= set(names)
    assert set(WRITTEN_OUT) == set(RULES)


def test_constant_inputs_are_named():
    limits = {line.op: line.limits for line in lines()}
    assert "constant `pads`, `constant_value`, `axes`" in limits["Pad"] and "`k`" not in limits["Softmax"]
