from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.export import layout as L

shapes = st.lists(st.integers(1, 6), min_size=0, max_size=5).map(tuple)


@st.composite
def layouts(draw):
    extents = draw(shapes)
    return L.layout(extents, draw(st.permutations(range(len(extents)))))


def addresses(of, shape):
    """The logical index of the element at each place in memory."""
    return L.pack(np.arange(prod(shape)).reshape(shape), of)


@given(layouts())
def test_canonical_layouts_are_fixed_points_and_place_elements_one_to_one(of):
    assert L.layout(of.extents, of.order) == of
    assert 1 not in of.extents
    assert sorted(addresses(of, (of.size,))) == list(range(of.size))


@given(layouts(), layouts())
def test_equal_layouts_are_exactly_those_that_place_equally(one, other):
    if one.size == other.size:
        same = np.array_equal(addresses(one, (one.size,)), addresses(other, (one.size,)))
        assert same == (one == other)


@given(layouts())
def test_unpack_undoes_pack(of):
    data = np.random.default_rng(0).random(of.size)
    assert np.array_equal(L.unpack(L.pack(data, of), of, data.shape), data)


@given(shapes, st.data())
def test_transposed_leaves_memory_as_it_is(shape, data):
    of = L.layout(shape, data.draw(st.permutations(range(len(shape)))))
    perm = data.draw(st.permutations(range(len(shape))))
    logical = np.arange(prod(shape)).reshape(shape)
    moved = L.transposed(of, shape, perm)
    assert np.array_equal(L.pack(logical.transpose(perm), moved), L.pack(logical, of))


@given(shapes, st.data())
def test_dims_tell_the_address_of_every_element(shape, data):
    of = L.layout(shape, data.draw(st.permutations(range(len(shape)))))
    pieces = L.dims(of, shape)
    place = np.empty(prod(shape), int)
    place[addresses(of, shape)] = np.arange(prod(shape))
    for flat, index in enumerate(np.ndindex(*shape)):
        address = 0
        for position, factors in zip(index, pieces, strict=True):
            rest = position
            for factor in reversed(factors):
                address += rest % factor.extent * factor.stride
                rest //= factor.extent
        assert place[flat] == address


@given(layouts(), st.data())
def test_reshaped_keeps_the_placement_or_says_no(of, data):
    divisors = [d for d in range(1, of.size + 1) if of.size % d == 0]
    inner = data.draw(st.sampled_from(divisors))
    shape = (of.size // inner, inner)
    found = L.reshaped(of, shape)
    if of.is_row_major:
        assert found == of
    if found is not None:
        assert L.dims(found, shape) is not None


def test_channels_last_costs_nothing_where_nothing_would_move():
    assert L.channels_last((8, 64, 1, 1)) == L.row_major((8, 64, 1, 1))
    assert L.channels_last((8, 1, 5, 7)) == L.row_major((8, 1, 5, 7))
    assert L.channels_last((8, 3, 5, 7)) != L.row_major((8, 3, 5, 7))


def test_a_channel_shuffle_is_one_permutation_of_the_channels():
    shape, split = (2, 6, 4, 4), (2, 3, 2, 4, 4)
    grouped = L.reshaped(L.channels_last(shape), split)
    swapped = L.transposed(grouped, split, (0, 2, 1, 3, 4))
    assert swapped != L.channels_last(shape)
    assert L.reshaped(swapped, shape) == swapped
    assert L.dims(swapped, shape)[1] == [L.Factor(2, 1), L.Factor(3, 2)]


def test_flattening_channels_last_only_permutes_the_columns():
    of = L.reshaped(L.channels_last((4, 8, 3, 3)), (4, 72))
    assert L.dims(of, (4, 72)) == [[L.Factor(4, 72)], [L.Factor(8, 1), L.Factor(9, 8)]]


def test_a_reshape_across_permuted_factors_is_refused():
    assert L.reshaped(L.channels_last((1, 4, 3, 3)), (9, 4)) is None
