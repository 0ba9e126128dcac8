from hypothesis import given
from hypothesis import strategies as st

from core.export.memory import ALIGNMENT, Lifetime, plan_memory

lives = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size * ALIGNMENT, first, first + length),
        st.integers(1, 50),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=30,
).map(lambda found: dict(enumerate(found)))


@given(lives)
def test_buffers_alive_together_never_overlap(buffers):
    plan = plan_memory(buffers)
    assert plan.offsets.keys() == buffers.keys()
    for i, a in buffers.items():
        assert plan.offsets[i] % ALIGNMENT == 0
        assert 0 <= plan.offsets[i] <= plan.nbytes - a.nbytes
        for j, b in buffers.items():
            if i < j and a.meets(b):
                assert plan.offsets[i] + a.nbytes <= plan.offsets[j] or plan.offsets[j] + b.nbytes <= plan.offsets[i]


@given(lives)
def test_the_peak_lies_between_the_bound_and_no_reuse(buffers):
    plan = plan_memory(buffers)
    assert plan.lower_bound <= plan.nbytes <= sum(b.nbytes for b in buffers.values())


def test_a_chain_needs_two_buffers():
    chain = {i: Lifetime(1024, i, i + 1) for i in range(10)}
    assert plan_memory(chain).nbytes == 2048 == plan_memory(chain).lower_bound
