import keyword
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.export.c_text import c_float, c_int, c_string, library_name

names = st.text(max_size=40) | st.sampled_from(
    ["", "int", "9", "class", "résnet/50", 'a"; exit(1); //', "\\", "??/", "main"]
)


@given(names)
def test_library_names_are_identifiers_everywhere(text):
    name = library_name(text)
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,70}", name)
    assert not keyword.iskeyword(name) and name not in ("int", "class", "main", "register")
    assert library_name(name) == name


@given(st.text(max_size=60))
def test_string_literals_hold_the_text_and_cannot_end_early(text):
    literal = c_string(text)
    inner = literal[1:-1]
    assert literal[0] == literal[-1] == '"' and literal.isascii() and literal.isprintable()
    assert '"' not in inner and "?" not in inner
    assert not re.search(r"\\(?![0-7]{3})", inner)
    plain = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), inner).encode("latin-1")
    assert plain == text.encode("utf-8", "backslashreplace")


@given(st.floats(width=32))
def test_floats_read_back_exactly(value):
    text = c_float(value)
    assert text in ("NAN", "INFINITY", "-INFINITY") or float(text[:-1]) == pytest.approx(value, rel=1e-8)


def test_the_smallest_integer_is_a_legal_literal():
    assert c_int(-(2**63)) == "(-9223372036854775807LL - 1)"
    assert c_int(-5) == "-5LL"
