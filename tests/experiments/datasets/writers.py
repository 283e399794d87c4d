"""Files in the published formats, from their descriptions, with none of the readers' code."""

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
