"""Files in the published formats, from their descriptions, with none of the readers' code."""

import sqlite3
import struct
import tracemalloc
from contextlib import contextmanager

import numpy as np

IDX_CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array):
    array = np.asarray(array)
    code = IDX_CODES[array.dtype.str[1:]]
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return (
        bytes([0, 0, code, array.ndim])
        + sizes
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def varint(number):
    number %= 1 << 64
    out = bytearray()
    while number > 127:
        out.append(128 + number % 128)
        number //= 128
    return bytes([*out, number])


def delimited(number, content):
    return varint(8 * number + 2) + varint(len(content)) + content


def feature(values, *, packed=True):
    values = list(values)
    if values and isinstance(values[0], bytes):
        return delimited(1, b"".join(delimited(1, value) for value in values))
    if values and isinstance(values[0], float):
        if packed:
            return delimited(2, delimited(1, struct.pack(f"<{len(values)}f", *values)))
        return delimited(2, b"".join(varint(8 + 5) + struct.pack("<f", v) for v in values))
    if packed:
        return delimited(3, delimited(1, b"".join(varint(v) for v in values)))
    return delimited(3, b"".join(varint(8) + varint(v) for v in values))


def example(features, *, packed=True):
    entries = b"".join(
        delimited(1, delimited(1, name.encode()) + delimited(2, feature(values, packed=packed)))
        for name, values in features.items()
    )
    return delimited(1, entries)


def sqlite(path, splits, *, metadata=True):
    """``splits``: {split: {client: [serialized examples]}}."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, "
            "serialized_example_proto BLOB NOT NULL)"
        )
        connection.execute("CREATE INDEX idx_examples_client_id ON examples (client_id)")
        connection.execute(
            "CREATE INDEX idx_examples_client_id_split ON examples (split_name, client_id)"
        )
        if metadata:
            connection.execute(
                "CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, "
                "num_examples INTEGER NOT NULL)"
            )
        for split, clients in splits.items():
            for client, messages in clients.items():
                if metadata:
                    connection.execute(
                        "INSERT INTO client_metadata VALUES (?, ?, ?)",
                        (client, split, len(messages)),
                    )
                connection.executemany(
                    "INSERT INTO examples VALUES (?, ?, ?)",
                    [(split, client, message) for message in messages],
                )
    connection.close()
    return path


def hdf5(path, clients):
    """``clients``: {client: {feature: array, or list of bytes}}."""
    import h5py

    with h5py.File(path, "w") as file:
        for client, features in clients.items():
            group = file.create_group(f"examples/{client}")
            for name, values in features.items():
                if isinstance(values, list):
                    group.create_dataset(name, data=values, dtype=h5py.string_dtype())
                else:
                    group.create_dataset(name, data=values)
    return path


@contextmanager
def little_memory(limit=10e6):
    """Fail if the body asked for more memory than the limit."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit
