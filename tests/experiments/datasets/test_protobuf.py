"""tf.train.Example against an independent writer, and against arbitrary bytes."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.datasets.base import DataError
from experiments.datasets.tensorflow_federated.protobuf import parse_example
from tests.experiments.datasets import writers
from tests.experiments.datasets.writers import delimited, varint

VALUES = st.one_of(
    st.lists(st.binary(max_size=20), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8),
)


@given(
    features=st.dictionaries(st.text("labeé→😀", max_size=10), VALUES, max_size=4),
    packed=st.booleans(),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_examples_come_back(features, packed):
    read = parse_example(writers.example(features, packed=packed))
    assert read.keys() == features.keys()
    for name, values in features.items():
        assert list(read[name]) == values


def test_a_message_known_byte_by_byte():
    # Example{features{feature{key: "label" value{int64_list{value: 7}}}}}, assembled by hand
    message = b"\x0a\x10\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x07"
    read = parse_example(message)
    assert list(read) == ["label"]
    np.testing.assert_array_equal(read["label"], [7])


def test_unknown_fields_are_skipped_and_the_last_value_counts():
    entry = delimited(1, b"a") + delimited(2, writers.feature([1, 2]))
    other = delimited(1, b"a") + delimited(2, writers.feature([b"x"]) + writers.feature([3.5]))
    extra = varint(8 * 9) + varint(5) + varint(8 * 10 + 1) + bytes(8) + delimited(11, b"?")
    message = delimited(1, delimited(1, entry) + extra + delimited(1, other)) + extra
    assert list(parse_example(message)["a"]) == [3.5]


def test_features_may_come_in_two_messages_and_lists_in_two_parts():
    first = delimited(1, delimited(1, b"a") + delimited(2, writers.feature([1.0]) * 2))
    second = delimited(1, delimited(1, b"b") + delimited(2, writers.feature([2])))
    read = parse_example(delimited(1, first) + delimited(1, second))
    assert list(read["a"]) == [1.0, 1.0]
    assert list(read["b"]) == [2]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x0a" + varint(10**15) + b"x", "only 1 left"),
        (b"\x0a" + varint(2**64 - 1), "only 0 left"),
        (b"\xff" * 1000, "more than 10 bytes"),
        (b"\x0a\xff\xff", "ends within a number"),
        (b"\x02\x00", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x0d\x00\x00", "only 2 left"),
        (delimited(1, delimited(1, delimited(1, b"\xff\xfe"))), "UTF-8"),
        (
            delimited(1, delimited(1, delimited(2, delimited(2, delimited(1, b"\0" * 5))))),
            "multiple of 4",
        ),
    ],
)
def test_damaged_messages_say_what_is_wrong(message, reason):
    with pytest.raises(DataError, match=reason):
        parse_example(message)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_an_example_or_a_clear_error(message):
    with suppress(DataError):
        parse_example(message)


GOOD = writers.example({"pixels": [0.5] * 9, "label": [3, -4], "tokens": [b"a b", b"c"]})


@given(position=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255), cut=st.booleans())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damage_to_a_good_message_is_an_example_or_a_clear_error(position, value, cut):
    message = bytearray(GOOD)
    message[position] = value
    with suppress(DataError):
        parse_example(bytes(message[:position] if cut else message))


def test_a_deep_or_long_message_takes_linear_work():
    many = delimited(1, b"") * 100_000
    assert list(parse_example(delimited(1, many))) == [""]
    parts = writers.feature([1]) * 50_000
    message = delimited(1, delimited(1, delimited(1, b"a") + delimited(2, parts)))
    assert len(parse_example(message)["a"]) == 50_000
