"""Lists of workloads: the built-in ones and the user's."""

import json

import pytest

from core.bench.suites import odd, read_shapes, suite
from core.errors import BoltError
from core.search.rank import rank
from core.session import open_model
from templates.gpu import KNOWN_GPUS
from templates.workload import Chain, ConvWorkload, GemmWorkload, parse_workload


def test_a_one_by_one_conv_is_its_gemm() -> None:
    assert suite("conv")["n32 56x56 64->256 1x1 s1"] == parse_workload(
        "gemm 100352x256x64 f16.f32 row.col bias+relu"
    )  # fmt: skip


def test_conv_shapes_keep_the_published_outputs() -> None:
    convs = [w for w in suite("conv").values() if isinstance(w, ConvWorkload)]
    assert all((w.p, w.q) == (w.h // w.stride[0], w.w // w.stride[1]) for w in convs)


def test_the_convolutions_are_every_one_of_the_three_networks() -> None:
    """Those of the built-in models, which the planner made of their graphs; of MobileNet-V2 its widest and its last."""
    found = {w.key for w in suite("conv").values()}
    for model in ("resnet50", "repvgg-a0"):
        planned = {k for k in open_model(model, 32).plan.workloads if not k.startswith("gemm 32x1000x")}
        assert planned <= found, planned - found
    assert {"n32 7x7 960->960 3x3 s1 g960 bias+clip(0,6)", "n32 7x7 320->1280 1x1 s1 bias+clip(0,6)"} <= set(
        suite("conv")
    )
    assert len(found) == len(suite("conv"))


def test_the_gemm_suite_reaches_from_one_row_to_many_and_has_odd_shapes() -> None:
    gemms = suite("gemm")
    assert len(gemms) == 42
    assert {w.m for w in gemms.values()} >= {1, 8, 32, 1280, 16384}
    assert 6 <= sum(map(odd, gemms.values())) <= 12
    assert not odd(gemms["4096x4096x4096"]) and odd(gemms["1024x50257x768"]) and odd(gemms["2048x512x479"])


def test_the_paddings_are_the_papers_and_the_audit_has_twelve() -> None:
    assert len(suite("padding")) == 6 and all(map(odd, suite("padding").values()))
    assert len(suite("audit")) == 12
    with pytest.raises(KeyError):
        suite("nothing")


def test_every_activation_has_a_gemm_and_a_conv() -> None:
    found = suite("epilogue")
    assert len(found) == 12 and len({w.key for w in found.values()}) == 12


def test_every_pair_of_the_papers_tables_has_kernels_on_hopper() -> None:
    """The first four of table 1 and the first six of table 2, with columns and channels filled up to eight."""
    h200 = KNOWN_GPUS["h200"]
    gemms, convs = suite("b2b-gemm"), suite("b2b-conv")
    assert list(gemms)[:4] == [
        "2464: 8->8->8",
        "16384: 256->64->16",
        "32768: 576->128->64",
        "128320: 96->32->96",
    ]
    assert len(convs) == 11 and "n32 56x56 48->48 3x3 s1 ->48 1x1" in convs
    assert "2048: 16->512->256->64" in gemms and "16384: 512->512->256->1" in gemms
    for workload in (*gemms.values(), *convs.values()):
        assert isinstance(workload, Chain) and rank(workload, h200).candidates, workload.key


KEY = GemmWorkload(8, 16, 32).key


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("a.json", json.dumps([KEY]), [KEY]),
        ("a.json", json.dumps({"mine": KEY}), ["mine"]),
        ("a.csv", f"name,workload\nmine,{KEY}\n", ["mine"]),
        ("a.csv", f"workload\n{KEY}\n", [KEY]),
    ],
)
def test_own_lists(tmp_path, name, content, labels) -> None:
    (tmp_path / name).write_text(content)
    found = read_shapes(tmp_path / name)
    assert list(found) == labels
    assert [w.key for w in found.values()] == [KEY]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", "{"), ("a.json", "[1]"), ("a.json", '["gemm 1"]'), ("a.csv", "a,b\n1,2\n"), ("a.json", "3")],
)
def test_a_bad_list_is_one_clear_line(tmp_path, name, content) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BoltError, match=r"not a list of workloads.*an entry looks like"):
        read_shapes(tmp_path / name)


def test_a_missing_list_is_said(tmp_path) -> None:
    with pytest.raises(BoltError, match="cannot read"):
        read_shapes(tmp_path / "none.json")
