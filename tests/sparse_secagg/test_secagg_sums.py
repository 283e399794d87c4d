"""Exact sums in Z_M and bit packing, against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from sparse_secagg import IdealSecAgg, MaskedSecAgg
from sparse_secagg.secagg import BelowThresholdError, InvalidMessageError
from sparse_secagg.secagg.masks import add_modulo
from sparse_secagg.secagg.modular import modular_sum
from sparse_secagg.secagg.wire import bit_width, pack, packed_size, unpack

MODULI = st.one_of(st.integers(1, 63).map(lambda b: 2**b), st.integers(2, 2**63))


def python_sum(rows, modulus):
    return [sum(map(int, column)) % modulus for column in np.asarray(rows, dtype=object).T]


def random_rows(rng, modulus, shape):
    """Uniform residues with many at both ends, where carries happen."""
    rows = rng.integers(0, modulus, shape, dtype=np.uint64)
    ends = np.array([0, 1, modulus // 2, modulus - 1], dtype=np.uint64)
    return np.where(rng.random(shape) < 0.5, rng.choice(ends, shape), rows)


@settings(deadline=None)
@given(modulus=MODULI, n=st.integers(1, 300), m=st.integers(0, 20), seed=st.integers(0, 2**32))
def test_ideal_sum_is_exact(modulus, n, m, seed):
    rows = random_rows(np.random.default_rng(seed), modulus, (n, m))
    total = IdealSecAgg(modulus=modulus).aggregate(rows).total
    assert total.dtype == np.uint64
    assert total.tolist() == python_sum(rows, modulus)


@settings(deadline=None, max_examples=40)
@given(
    modulus=MODULI,
    n=st.integers(5, 8),
    m=st.integers(0, 20),
    neighbors=st.sampled_from([None, 4]),
    masks=st.sampled_from(["x25519", "seeded"]),
    seed=st.integers(0, 2**32),
)
def test_masked_sum_is_exact(modulus, n, m, neighbors, masks, seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, modulus, (n, m))
    dropouts = {str(rng.choice(["advertise", "share", "mask", "unmask"])): [int(rng.integers(n))]}
    secagg = MaskedSecAgg(2, neighbors, masks, modulus)
    result = secagg.aggregate(rows, dropouts)
    assert result.total.tolist() == python_sum(rows[result.survivors], modulus)
    assert n - result.n_survivors == (0 if "unmask" in dropouts else 1)


@pytest.mark.parametrize("modulus", [2**63, 2**63 - 25, 3**39, 2**16, 2])
def test_sum_of_a_hundred_thousand_largest_residues(modulus):
    rows = np.full((10**5, 3), modulus - 1, dtype=np.uint64)
    rows[0] = [0, 1, modulus // 2]
    expected = [((10**5 - 1) * (modulus - 1) + int(v)) % modulus for v in rows[0]]
    assert IdealSecAgg(modulus=modulus).aggregate(rows).total.tolist() == expected


def test_sum_does_not_depend_on_the_type_order_or_blocks_of_the_input():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 100, (50, 5000))
    expected = rows.sum(axis=0) % 100
    for dtype in (np.uint8, np.int16, np.uint32, np.int64, object):
        assert np.array_equal(
            IdealSecAgg(modulus=100).aggregate(rows.astype(dtype)).total, expected
        )
    assert np.array_equal(modular_sum(np.asfortranarray(rows), 100), expected)
    read_only = rows.copy()
    read_only.flags.writeable = False
    assert np.array_equal(IdealSecAgg(modulus=100).aggregate(read_only).total, expected)
    assert np.array_equal(IdealSecAgg(modulus=100).aggregate(list(rows)).total, expected)


@settings(deadline=None)
@given(modulus=MODULI, data=st.data())
def test_add_modulo(modulus, data):
    residue = st.integers(0, modulus - 1)
    a, b = data.draw(residue), data.draw(residue)
    A, B = np.array([a], dtype=np.uint64), np.array([b], dtype=np.uint64)
    assert add_modulo(A, B, modulus).tolist() == [(a + b) % modulus]
    assert add_modulo(A, B, modulus, sign=-1).tolist() == [(a - b) % modulus]


class TestPacking:
    @pytest.mark.parametrize("bits", range(1, 64))
    def test_round_trip_and_layout(self, bits):
        rng = np.random.default_rng(bits)
        for length in (0, 1, 7, 8, 63, 64, 65, 200):
            values = rng.integers(0, 2**bits, length, dtype=np.uint64)
            if length:
                values[0], values[-1] = 2**bits - 1, 2**bits - 1
            data = pack(values, bits)
            stream = sum(int(v) << (bits * i) for i, v in enumerate(values))
            assert data == stream.to_bytes(packed_size(length, bits), "little")
            assert unpack(data, bits, length).tolist() == values.tolist()

    @given(st.integers(2, 2**63))
    def test_bit_width_holds_every_residue_and_no_bit_more(self, modulus):
        assert 2 ** (bit_width(modulus) - 1) < modulus <= 2 ** bit_width(modulus)

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(ValueError, match="2\\*\\*3"):
            pack(np.array([8]), 3)
        with pytest.raises(ValueError, match="2\\*\\*3"):
            pack(np.array([-1]), 3)
        with pytest.raises(ValueError, match="dtype float64"):
            pack(np.array([1.0]), 3)
        with pytest.raises(ValueError, match="bits=64"):
            pack(np.array([1]), 64)

    def test_malformed_bytes_are_refused(self):
        data = pack(np.arange(5), 3)
        with pytest.raises(ValueError, match="1 bytes"):
            unpack(data[:1], 3, 5)
        with pytest.raises(ValueError, match="not zero"):
            unpack(data[:-1] + bytes([data[-1] | 0x80]), 3, 5)


class TestIdeal:
    def test_dropouts_are_not_in_the_sum_and_late_ones_are(self):
        rows = 2 ** np.arange(6)[:, None]
        result = IdealSecAgg(modulus=64, threshold=2).aggregate(
            rows, {"advertise": [0], "share": [1], "mask": [2], "unmask": [3]}
        )
        assert result.total.tolist() == [8 + 16 + 32]
        assert result.survivors.tolist() == [3, 4, 5]

    def test_below_the_threshold_nothing_is_returned(self):
        secagg = IdealSecAgg(modulus=64, threshold=3)
        assert secagg.aggregate(np.ones((4, 1), int), [0]).n_survivors == 3
        with pytest.raises(BelowThresholdError, match="threshold of 3"):
            secagg.aggregate(np.ones((4, 1), int), {"mask": [0], "unmask": [1]})

    def test_payload_bytes(self):
        result = IdealSecAgg(modulus=2**11).aggregate(np.zeros((3, 100), int), [1])
        assert result.bytes_up.tolist() == [138, 0, 138]
        assert result.bytes_down.tolist() == [0, 0, 0]


@pytest.mark.parametrize("secagg", [IdealSecAgg(modulus=5), MaskedSecAgg(modulus=5, threshold=2)])
class TestInvalidMessages:
    BAD = (
        [[1, 2], [3, 5], [0, 0], [1, 1]],
        [[1, 2], [3, -1], [0, 0], [1, 1]],
        [[1, 2], [3, 2**64], [0, 0], [1, 1]],
        [[1, 2], [3, 0.5], [0, 0], [1, 1]],
        [[1, 2], [3, 4, 0], [0, 0], [1, 1]],
    )

    @pytest.mark.parametrize("rows", BAD)
    def test_the_client_is_named(self, secagg, rows):
        with pytest.raises(InvalidMessageError, match="client 1 ") as caught:
            secagg.aggregate(rows)
        assert caught.value.client == 1

    @pytest.mark.parametrize("rows", BAD)
    def test_the_round_can_go_on_without_it(self, secagg, rows):
        from sklearn.base import clone

        result = clone(secagg).set_params(on_invalid="exclude").aggregate(rows)
        assert result.total.tolist() == [2, 3]
        assert result.survivors.tolist() == [0, 2, 3]
        assert list(result.excluded) == [1]

    def test_small_signed_types(self, secagg):
        with pytest.raises(InvalidMessageError, match="client 2 "):
            secagg.aggregate(np.array([[1], [4], [-1]], dtype=np.int8))

    @pytest.mark.parametrize(
        ("messages", "match"),
        [
            (np.zeros((3, 2)), "dtype float64"),
            (np.zeros(3, int), "shape"),
            ([], "empty"),
        ],
    )
    def test_what_is_nobodys_fault_is_an_error_too(self, secagg, messages, match):
        with pytest.raises(ValueError, match=match):
            secagg.aggregate(messages)


@pytest.mark.parametrize("modulus", [None, 1, 2**63 + 1, 2.0, True])
def test_modulus_is_checked(modulus):
    for secagg in (IdealSecAgg(modulus=modulus), MaskedSecAgg(modulus=modulus)):
        with pytest.raises(ValueError, match=f"modulus={modulus}"):
            secagg.aggregate(np.zeros((3, 1), int))


@pytest.mark.parametrize(
    "secagg", [IdealSecAgg(threshold=3), MaskedSecAgg(threshold=3, masks="seeded")]
)
def test_a_sum_that_is_begun_and_added_to_is_the_sum_of_all_at_once(secagg):
    messages = np.random.default_rng(0).integers(0, 256, (7, 11)).astype(np.uint64)
    whole = clone(secagg).set_params(modulus=256).aggregate(messages, dropouts=[2])
    begun = secagg.begin(7, 11, modulus=256, dropouts=[2])
    assert begun.n_certain <= 6
    for block in (messages[:3], messages[3:4], messages[4:]):
        begun.add(block)
    result = begun.finish()
    np.testing.assert_array_equal(result.total, whole.total)
    np.testing.assert_array_equal(result.survivors, whole.survivors)
    np.testing.assert_array_equal(result.payload_up, whole.payload_up)


def test_ideal_aggregation_knows_its_survivors_before_the_first_message():
    assert IdealSecAgg().begin(5, 3, modulus=16, dropouts=[0, 4]).n_certain == 3
    with pytest.raises(BelowThresholdError):
        IdealSecAgg(threshold=4).begin(5, 3, modulus=16, dropouts=[0, 4])


def test_a_sum_of_too_few_or_too_many_messages_is_refused():
    begun = IdealSecAgg().begin(3, 2, modulus=16)
    begun.add(np.zeros((2, 2), dtype=np.uint64))
    with pytest.raises(ValueError, match="2 messages were added for a cohort of 3"):
        begun.finish()
    with pytest.raises(ValueError, match="1 messages of 2 integers are left"):
        begun.add(np.zeros((2, 2), dtype=np.uint64))
    with pytest.raises(ValueError, match="1 messages of 2 integers are left"):
        begun.add(np.zeros((1, 3), dtype=np.uint64))
