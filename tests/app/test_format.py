"""Numbers as they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.format import figures, micros, nbytes, seconds, workload_line
from templates.types import Residence
from templates.workload import B2bConvWorkload, B2bGemmWorkload, ConvWorkload, GemmWorkload


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.0, "1,230"),
        (12.345, "12.3"),
        (0.0456, "0.0456"),
        (9.999, "10.0"),
        (100.0, "100"),
        (0, "0"),
        (1e-9, "1.00e-09"),
    ],
)
def test_three_significant_figures(value: float, text: str) -> None:
    assert figures(value) == text


@given(st.floats(1e-6, 1e12))
def test_figures_are_within_half_a_unit_of_the_third(value: float) -> None:
    assert float(figures(value).replace(",", "")) == pytest.approx(value, rel=5.1e-3)


def test_units_follow_the_size() -> None:
    assert (micros(999.0), micros(1500.0), micros(0.5)) == ("999 us", "1.50 ms", "0.5 us")
    assert (nbytes(512), nbytes(2048), nbytes(3 << 20)) == ("512 B", "2.00 KiB", "3.00 MiB")
    assert (seconds(8.2), seconds(100), seconds(7500)) == ("8 s", "1 min 40 s", "2 h 5 min")


def test_workloads_in_one_line() -> None:
    assert workload_line(GemmWorkload(1, 2, 3, batch=4)) == "1 x 2 x 3, batch 4"
    conv = ConvWorkload(32, 56, 56, 64, 128, 3, 3, (1, 1, 1, 1), (2, 2), groups=2)
    assert workload_line(conv) == "3x3 64 -> 128, 56x56, stride 2, groups 2, batch 32"
    assert workload_line(B2bConvWorkload(conv, 96)).endswith(", batch 32, then -> 96")
    assert workload_line(B2bGemmWorkload(GemmWorkload(1, 2, 3), 4)) == "1 x 2 x 3, then -> 4"
    kept = B2bGemmWorkload(GemmWorkload(1, 2, 3), 4, residence=Residence.RF)
    assert workload_line(kept) == "1 x 2 x 3, then -> 4, in RF"
