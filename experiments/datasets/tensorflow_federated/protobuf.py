"""``tf.train.Example`` messages, read from their bytes without TensorFlow.

The messages, in the notation of protocol buffers::

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }
    Feature  { oneof kind { BytesList = 1; FloatList = 2; Int64List = 3; } }
    *List    { repeated bytes | float | int64 value = 1; }   // numbers packed or one by one

Every length is compared with what is left before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import DataError

Feature = list[bytes] | NDArray[np.float32] | NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST_VARINT = 10  # seven bits a byte of 64


def parse_example(message: bytes) -> dict[str, Feature]:
    """Return the features of a serialized ``tf.train.Example`` by name."""
    features: dict[str, Feature] = {}
    for group in _messages(memoryview(message), 1):
        for entry in _messages(group, 1):
            name, value = _entry(entry)
            features[name] = value
    return features


def _messages(buffer: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the length-delimited fields of one number; others are skipped, as the format asks."""
    for field, wire_type, value in _fields(buffer):
        if field == number and wire_type == _BYTES:
            assert isinstance(value, memoryview)
            yield value


def _entry(entry: memoryview) -> tuple[str, Feature]:
    name, value = "", memoryview(b"")
    for field, wire_type, content in _fields(entry):
        if wire_type == _BYTES and isinstance(content, memoryview):
            if field == 1:
                try:
                    name = bytes(content).decode("utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(f"a feature's name is not UTF-8 ({error})") from error
            elif field == 2:
                value = content
    return name, _feature(value)


def _feature(buffer: memoryview) -> Feature:
    """Return the list that the feature holds: of a oneof, the last kind set counts."""
    kind, parts = _BYTES_LIST, list[memoryview]()
    for field, wire_type, content in _fields(buffer):
        if field in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST) and wire_type == _BYTES:
            assert isinstance(content, memoryview)
            if field != kind:
                kind, parts = field, []
            parts.append(content)
    if kind == _BYTES_LIST:
        return [bytes(value) for part in parts for value in _messages(part, 1)]
    if kind == _FLOAT_LIST:
        floats = [_floats(part) for part in parts]
        return np.concatenate(floats) if floats else np.zeros(0, np.float32)
    return np.array([value for part in parts for value in _integers(part)], dtype=np.int64)


def _floats(buffer: memoryview) -> NDArray[np.float32]:
    packed = []
    for field, wire_type, value in _fields(buffer):
        if field == 1 and wire_type in (_BYTES, _FIXED32):
            assert isinstance(value, memoryview)
            if len(value) % 4:
                raise DataError(f"a list of floats has {len(value)} bytes, not a multiple of 4")
            packed.append(value)
    return np.frombuffer(b"".join(packed), dtype="<f4").astype(np.float32)


def _integers(buffer: memoryview) -> Iterator[int]:
    for field, wire_type, value in _fields(buffer):
        if field != 1:
            continue
        if isinstance(value, int):
            yield _signed(value)
        elif wire_type == _BYTES:
            position = 0
            while position < len(value):
                number, position = _varint(value, position)
                yield _signed(number)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _fields(buffer: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield (number, wire type, value): an integer for varints, the bytes of anything else."""
    position = 0
    while position < len(buffer):
        key, position = _varint(buffer, position)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise DataError("a field has the number 0")
        if wire_type == _VARINT:
            value, position = _varint(buffer, position)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(buffer, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise DataError(f"a field has the wire type {wire_type}, which no Example uses")
        if length > len(buffer) - position:
            raise DataError(f"a field of {length} bytes has only {len(buffer) - position} left")
        yield number, wire_type, buffer[position : position + length]
        position += length


def _varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return a number of up to 64 bits and the position after it."""
    number = 0
    for k, byte in enumerate(buffer[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position + k + 1
    if len(buffer) - position >= _LONGEST_VARINT:
        raise DataError("a number runs on for more than 10 bytes")
    raise DataError("the message ends within a number")
