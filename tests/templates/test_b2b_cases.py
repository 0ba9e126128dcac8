"""The cases of the GPU tests of pairs name instances that exist and are legal for their shapes, but for idle SMs."""

import pytest

from templates import families
from templates.gpu import KNOWN_GPUS
from tests.gpu.b2b_cases import CASES, Case, random_runs

H200 = KNOWN_GPUS["h200"]
# Small shapes are run though larger tiles leave SMs idle.
_IDLE = (
    "SM",
    "warp groups",
    "without work",
    "mostly zeros",
    "never have channels",
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case: Case) -> None:
    kernel, family = case.kernel(H200), families()[case.family]
    for pair in case.pairs:
        assert family.refuses(pair, H200) is None
        reason = family.illegal(kernel, pair, H200)
        assert reason is None or any(word in reason for word in _IDLE), reason
        assert kernel in list(family.kernels(pair, H200)), pair.key


def test_the_random_pairs_reach_every_family_with_few_kernels() -> None:
    runs = random_runs(H200, 5, 200)
    assert {k.family for k, _ in runs} >= {"sm80_b2b", "sm90_b2b", "sm90_direct_b2b"}
    assert len({p.key for _, p in runs}) > 180 and len({k.name for k, _ in runs}) < 120
    assert all(families()[k.family].illegal(k, p, H200) is None for k, p in runs)
