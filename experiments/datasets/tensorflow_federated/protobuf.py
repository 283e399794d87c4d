"""``tf.train.Example`` messages, read from their bytes without TensorFlow.

The messages, in the notation of protocol buffers::

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }
    Feature  { oneof kind { BytesList = 1; FloatList = 2; Int64List = 3; } }
    *List    { repeated bytes | float | int64 value = 1; }   // numbers packed or one by one

Every length is compared with what is left before it is used.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import DataError

Feature = list[bytes] | NDArray[np.float32] | NDArray[np.int64]
#: Values of a message by the number of their field, in their order: integers, or bytes.
Fields = dict[int, list[Any]]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST_VARINT = 10  # seven bits a byte of 64


def parse_example(message: bytes) -> dict[str, Feature]:
    """Return the features of a serialized ``tf.train.Example`` by name."""
    features: dict[str, Feature] = {}
    for group in _parts(_fields(memoryview(message)), 1):
        for entry in _parts(_fields(group), 1):
            found = _fields(entry)
            names, values = _parts(found, 1), _parts(found, 2)
            try:
                name = bytes(names[-1]).decode("utf-8") if names else ""
            except UnicodeDecodeError as error:
                raise DataError(f"a feature's name is not UTF-8 ({error})") from error
            features[name] = _feature(values[-1] if values else memoryview(b""))
    return features


def _parts(fields: Fields, number: int) -> list[memoryview]:
    """Return the values of a field that are bytes; others are skipped, as the format asks."""
    return [value for value in fields[number] if isinstance(value, memoryview)]


def _feature(buffer: memoryview) -> Feature:
    """Return the list that the feature holds: of a oneof, the last kind set counts."""
    found = _fields(buffer)
    kinds = [n for n in found if n in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST) and _parts(found, n)]
    kind = kinds[-1] if kinds else _BYTES_LIST
    lists = [_fields(part) for part in _parts(found, kind)]
    if kind == _BYTES_LIST:
        return [bytes(value) for each in lists for value in _parts(each, 1)]
    if kind == _FLOAT_LIST:
        packed = b"".join(value for each in lists for value in _parts(each, 1))
        if len(packed) % 4:
            raise DataError(f"a list of floats has {len(packed)} bytes, not a multiple of 4")
        return np.frombuffer(packed, dtype="<f4").astype(np.float32)
    values = [value for each in lists for value in each[1]]
    numbers = [n for v in values for n in ([v] if isinstance(v, int) else _varints(v))]
    return np.array(numbers, dtype=np.uint64).astype(np.int64)


def _varints(buffer: memoryview) -> list[int]:
    found, position = [], 0
    while position < len(buffer):
        number, position = _varint(buffer, position)
        found.append(number)
    return found


def _fields(buffer: memoryview) -> Fields:
    """Return the fields of a message, the last one set at the end: integers or bytes."""
    found: Fields = defaultdict(list)
    position = 0
    while position < len(buffer):
        key, position = _varint(buffer, position)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise DataError("a field has the number 0")
        values = found.pop(number, [])
        found[number] = values
        if wire_type == _VARINT:
            value, position = _varint(buffer, position)
            values.append(value)
            continue
        if wire_type == _BYTES:
            length, position = _varint(buffer, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise DataError(f"a field has the wire type {wire_type}, which no Example uses")
        if length > len(buffer) - position:
            raise DataError(f"a field of {length} bytes has only {len(buffer) - position} left")
        values.append(buffer[position : position + length])
        position += length
    return found


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
