"""The roofline's arithmetic on figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.roofline import point, ridge, roof_tflops
from templates.gpu import KNOWN_GPUS
from templates.workload import GemmWorkload

A100 = KNOWN_GPUS["a100"]  # 312 TFLOP/s, 2039 GB/s


def test_the_ridge_is_where_both_roofs_meet() -> None:
    assert ridge(A100) == pytest.approx(312e12 / 2039e9)
    assert roof_tflops(A100, ridge(A100)) == pytest.approx(312)
    assert roof_tflops(A100, 1.0) == pytest.approx(2.039)
    assert roof_tflops(A100, 1e6) == 312


def test_a_gemm_on_both_sides() -> None:
    large = point(GemmWorkload(4096, 4096, 4096), 600.0, A100)
    assert large.tflops == pytest.approx(2 * 4096**3 / 600e-6 / 1e12)
    assert not large.memory_bound and large.share == pytest.approx(large.tflops / 312)
    thin = point(GemmWorkload(8, 4096, 4096), 20.0, A100)
    assert thin.memory_bound and thin.roof_tflops < 20


@given(st.floats(0.01, 1e5))
def test_no_roof_is_above_the_peak(intensity: float) -> None:
    assert 0 < roof_tflops(A100, intensity) <= A100.tensor_tflops
