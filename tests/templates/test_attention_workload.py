"""Identities of attention: the key holds everything and nothing else; what is counted, and what can't be one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from templates.attention import AttentionWorkload, MaskKind, heads_inside, heads_outside, span
from templates.types import DType
from templates.workload import parse_workload

extent = st.integers(1, 64)


@st.composite
def attentions(draw: st.DrawFn) -> AttentionWorkload:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    heads, q_len, kv_len = kv_heads * group, draw(extent), draw(extent)
    width, value = draw(extent), draw(extent)
    lay = draw(st.sampled_from([heads_inside, heads_outside]))
    mask = draw(st.sampled_from(MaskKind))
    strides = draw(st.tuples(extent, extent, extent)) if mask is not MaskKind.NONE else (0, 0, 0)
    return AttentionWorkload(
        draw(st.integers(1, 5)), heads, kv_heads, q_len, kv_len, width, value,
        draw(st.floats(1e-4, 1e4)), lay(heads, q_len, width), lay(kv_heads, kv_len, width),
        lay(kv_heads, kv_len, value), lay(heads, q_len, value), draw(st.sampled_from([DType.F16, DType.BF16])),
        causal=draw(st.booleans()), mask=mask, mask_strides=strides,
    )  # fmt: skip


@given(attentions())
def test_the_key_is_read_back(work: AttentionWorkload) -> None:
    assert parse_workload(work.key) == work


@given(attentions())
def test_what_counts(work: AttentionWorkload) -> None:
    seen = sum(min(i + 1, work.kv_len) if work.causal else work.kv_len for i in range(work.q_len))
    assert work.pairs == seen
    assert work.flops == 2.0 * work.batch * work.heads * seen * (work.head_dim + work.value_dim)
    assert span(work.q, (work.batch, work.heads, work.q_len), work.head_dim) == (
        work.batch * work.heads * work.q_len * work.head_dim
    )


BERT = AttentionWorkload(
    32, 12, 12, 40, 40, 64, 64, 0.125, *(heads_inside(12, 40, 64),) * 4, mask=MaskKind.ADD, mask_strides=(40, 0, 0)
)


def test_a_key_as_a_person_reads_it() -> None:
    strides = "30720.64.768"
    assert BERT.key == (
        f"attention b32 h12/12 s40/40 d64/64 f16.f32 x0.125 q{strides} k{strides} v{strides} o{strides} add40.0.0"
    )
    assert BERT.bytes == 4 * 32 * 40 * 768 * 2 + 32 * 40 * 2
    causal = replace(BERT, causal=True, mask=MaskKind.NONE, mask_strides=(0, 0, 0))
    assert causal.key.endswith(f"o{strides} causal")


@pytest.mark.parametrize(
    ("old", "new"),
    [("h12/12", "h12/5"), ("h12/12", "h12"), ("x0.125", "x0"), ("x0.125", "x0.1250"), ("x0.125", "xnan"),
     (" add40.0.0", " plus40.0.0"), (" add40.0.0", " add40.0"), (" add40.0.0", " add40.0.0 causal"),
     (" q", " r"), ("o30720.64.768", "o30720.64.700"), ("f16.f32", "f16"), ("attention", "gemm")],
)  # fmt: skip
def test_other_keys_are_refused(old: str, new: str) -> None:
    assert old in BERT.key
    with pytest.raises(ValueError, match="not a workload key"):
        parse_workload(BERT.key.replace(old, new, 1))
