"""The shared emission helpers: nothing but identifiers and numbers may reach C++."""

from contextlib import suppress
from dataclasses import replace

import pytest
from jinja2 import UndefinedError

from templates import families
from templates.attention import AttentionWorkload, heads_outside
from templates.emit import c_identifier, namespace_of, render, wrap
from templates.epilogue import Epilogue, EpilogueOp
from templates.family import Kernel
from templates.gpu import KNOWN_GPUS
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload, Workload

H200 = KNOWN_GPUS["h200"]
IMAGE = ConvWorkload(8, 56, 56, 64, 64, 3, 3, (1, 1, 1, 1))
WORKLOADS: list[Workload] = [
    GemmWorkload(128, 64, 64), GemmWorkload(128, 64, 46), IMAGE, replace(IMAGE, c=4), replace(IMAGE, groups=64),
    ConvWorkload(8, 56, 56, 64, 64, 1, 1, groups=2), B2bGemmWorkload(GemmWorkload(4096, 64, 64), 64),
    B2bConvWorkload(IMAGE, 64),
    AttentionWorkload(1, 2, 2, 128, 128, 64, 64, 0.125, *(heads_outside(2, 128, 64),) * 4),
]  # fmt: skip


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


@pytest.mark.parametrize("name", families())
def test_no_parameter_of_a_record_from_elsewhere_reaches_cpp_as_text(name: str) -> None:
    """A shared record's candidate is compiled as it stands: what is no number or known word must be refused."""
    family, code = families()[name], "1>; } void evil() { (void)(2"
    served = [w for w in WORKLOADS if family.refuses(w, H200) is None]
    legal = [k for w in served for k in family.kernels(w, H200) if family.illegal(k, w, H200) is None]
    assert legal, "no workload here is for the family"
    params = dict(legal[0].params)
    for param in params:
        evil = replace(legal[0], params=tuple((params | {param: code}).items()))
        with suppress(ValueError, TypeError, KeyError):
            assert code not in family.source(evil), param
