"""The shared emission helpers: nothing but identifiers and numbers may reach C++."""

import pytest
from jinja2 import UndefinedError

from templates.emit import c_identifier, namespace_of, render, wrap
from templates.epilogue import Epilogue, EpilogueOp
from templates.family import Kernel


def kernel(stem: str = "128x128x32") -> Kernel:
    return Kernel("sm80_gemm", (("tb_m", 128),), Epilogue((EpilogueOp("bias"),)), stem=stem)


def test_wrap_exports_the_three_functions_from_the_kernels_own_namespace():
    k = kernel()
    source = wrap(k, ("cutlass/cutlass.h",), "int body;\n")
    for entry in ("check", "workspace", "run"):
        assert f"bolt_{entry}_{k.name}(" in source
        assert f"{namespace_of(k)}::{entry}(*args" in source
    assert source.index("#include") < source.index("namespace bolt_")


def test_two_kernels_never_share_a_namespace():
    assert namespace_of(kernel()) != namespace_of(kernel("128x64x32"))


@pytest.mark.parametrize("text", ["", "1a", "a-b", "a b", 'a";', "a\n", "é"])
def test_what_is_no_identifier_is_refused(text):
    with pytest.raises(ValueError, match="not a C identifier"):
        c_identifier(text)


def test_a_name_that_is_code_cannot_be_wrapped():
    with pytest.raises(ValueError, match="not a C identifier"):
        wrap(kernel('x(){} extern "C" void y'), (), "")


def test_a_missing_value_is_an_error_not_an_empty_string(tmp_path):
    (tmp_path / "t.j2").write_text("{{ missing }}")
    with pytest.raises(UndefinedError):
        render(str(tmp_path / "family.py"), "t.j2")


def test_cpp_filter_takes_numbers_only(tmp_path):
    (tmp_path / "t.j2").write_text("{{ value | cpp }}")
    family = str(tmp_path / "family.py")
    assert render(family, "t.j2", value=True) == "true"
    assert render(family, "t.j2", value=8) == "8"
    with pytest.raises(TypeError):
        render(family, "t.j2", value="8; evil()")
