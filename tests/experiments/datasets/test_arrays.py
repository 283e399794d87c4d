"""IDX and .npz files: what was written comes back, and no header is believed."""

import gzip
import io
import os
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.datasets.arrays import read_idx, read_npz
from experiments.datasets.base import DataError
from experiments.datasets.files import ALWAYS_ALLOWED
from tests.experiments.datasets import writers
from tests.experiments.datasets.writers import little_memory


def arrays(dtypes, dims):
    """Return a strategy: dtype and shape drawn, bytes from a seed, which is quick."""

    def make(dtype, shape, seed):
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        bits = np.random.default_rng(seed).bytes(size)
        if dtype.kind == "U":
            bits = bytes(np.frombuffer(bits, "<u4") % 0xD000)
        elif dtype.kind == "b":
            bits = bytes(np.frombuffer(bits, "u1") % 2)
        return np.ndarray(shape, dtype, bits)

    shapes = st.lists(st.integers(0, 5), min_size=dims[0], max_size=dims[1]).map(tuple)
    return st.builds(make, st.sampled_from(dtypes), shapes, st.integers(0, 2**32))


ARRAYS = arrays(["u1", "i1", "i2", "i4", "f4", "f8"], (1, 4))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("idx") / "file"


@given(array=ARRAYS, zipped=st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_idx_comes_back(place, array, zipped):
    path = place.with_suffix(".gz") if zipped else place
    content = writers.idx(array)
    path.write_bytes(gzip.compress(content, 1) if zipped else content)
    read = read_idx(path)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.builds(
            lambda code, dims, sizes, body: (
                bytes([0, 0, code, dims]) + struct.pack(f">{len(sizes)}I", *sizes) + body
            ),
            st.integers(0, 20),
            st.integers(0, 255),
            st.lists(st.integers(0, 2**32 - 1), max_size=5),
            st.binary(max_size=30),
        ),
    )
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_an_idx_array_or_a_clear_error(place, content):
    place.write_bytes(content)
    try:
        array = read_idx(place)
    except DataError:
        return
    assert writers.idx(array) == content


@given(array=ARRAYS.filter(lambda a: a.size > 0), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_idx_of_the_wrong_length_is_refused(place, array, data):
    content = writers.idx(array)
    cut = data.draw(st.integers(0, len(content) - 1))
    place.write_bytes(content[:cut])
    with pytest.raises(DataError):
        read_idx(place)
    place.write_bytes(content + b"\0")
    with pytest.raises(DataError, match="goes on after"):
        read_idx(place)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_gigantic_idx_is_refused_before_memory_is_taken(tmp_path, suffix):
    content = bytes([0, 0, 8, 3]) + struct.pack(">3I", 10**6, 10**3, 10**3) + b"\0" * 100
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with little_memory(), pytest.raises(DataError, match="declares the shape.*1000000000000 bytes"):
        read_idx(path)


def test_a_gzip_bomb_behind_an_honest_small_header_is_not_expanded(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(writers.idx(np.zeros((2, 3), np.uint8)) + bytes(10**8), 9))
    with little_memory(), pytest.raises(DataError, match="goes on after the 6 bytes"):
        read_idx(path)


def test_a_sparse_file_is_not_read_as_zeros(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3I", 10**6, 10**3, 10**3))
    os.truncate(path, 16 + 10**12)
    if path.stat().st_blocks > 10**6:
        pytest.skip("this file system has no sparse files")
    with little_memory(), pytest.raises(DataError, match="declares the shape"):
        read_idx(path)


def test_broken_gzip_is_named(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(writers.idx(np.arange(1000, dtype="i4")))[:-20])
    with pytest.raises(DataError, match="images.gz cannot be read"):
        read_idx(path)


# --- .npz ------------------------------------------------------------------------------------


def npy(header, body=b""):
    out = io.BytesIO()
    text = repr(header).encode() if isinstance(header, dict) else header
    out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body)
    return out.getvalue()


def archive(path, **members):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name if "/" in name else f"{name}.npy", content)
    return path


@given(
    array=arrays(["?", "u1", "<i8", ">i4", "<f4", "<U3", "S2"], (0, 3)),
    fortran=st.booleans(),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_npz_comes_back_as_numpy_reads_it(place, array, fortran):
    path = place.with_suffix(".npz")
    np.savez(path, a=np.asfortranarray(array) if fortran else array, b=np.arange(3))
    a, b = read_npz(path, ["a", "b"])
    with np.load(path) as expected:
        np.testing.assert_array_equal(a, expected["a"])
        assert a.dtype == expected["a"].dtype
    np.testing.assert_array_equal(b, [0, 1, 2])


HEADER = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER, "declares the shape .*8000000000000 bytes"),
        (HEADER | {"shape": (0, 10**30)}, "no data can have"),
        (HEADER | {"shape": (-1, 4)}, "no data can have"),
        (HEADER | {"shape": (2**31, 2**31, 2**31)}, "declares the shape"),
        (HEADER | {"shape": "many"}, "not a NumPy array"),
        (HEADER | {"descr": "<U100000000", "shape": (1,)}, "400000000 bytes"),
        (HEADER | {"descr": "<U0"}, "refused"),
        (HEADER | {"descr": "|V0"}, "refused"),
        (HEADER | {"descr": "|O", "shape": (1,)}, "objects can run code"),
        (HEADER | {"descr": [("a", "<f8")], "shape": (1,)}, "refused"),
        (HEADER | {"descr": "<M8[s]", "shape": (1,)}, "refused"),
        (b"__import__('os').abort()", "not a NumPy array"),
        (b"(" * 5000, "not a NumPy array"),
        (b"\xff\xfe", "not a NumPy array"),
    ],
)
def test_hostile_npz_headers(tmp_path, header, message):
    path = archive(tmp_path / "data.npz", x=npy(header, b"\0" * 64))
    with little_memory(), pytest.raises(DataError, match=message) as caught:
        read_npz(path, ["x"])
    assert str(path) in str(caught.value)


def test_pickled_arrays_do_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    path = tmp_path / "data.npz"
    np.savez(path, x=np.array([Bomb()], dtype=object))
    with pytest.raises(DataError, match="objects can run code"):
        read_npz(path, ["x"])
    pickled = archive(tmp_path / "raw.npz", x=pickle.dumps(Bomb()))
    with pytest.raises(DataError, match="not a NumPy array"):
        read_npz(pickled, ["x"])
    assert not (tmp_path / "executed").exists()
    with np.load(path, allow_pickle=True) as unsafe:  # the control: the bomb is live
        unsafe["x"]
    assert (tmp_path / "executed").exists()


def test_a_zip_bomb_is_refused_before_it_is_expanded(tmp_path):
    path = tmp_path / "data.npz"
    shape = (ALWAYS_ALLOWED + 1,)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy({"descr": "|u1", "fortran_order": False, "shape": shape}))
        for _ in range(shape[0] // 2**20 + 1):
            member.write(bytes(2**20))
    with little_memory(), pytest.raises(DataError, match="at most .* are there to read"):
        read_npz(path, ["x"])


def test_compression_that_numpy_never_uses_is_refused(tmp_path):
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("x.npy", npy({"descr": "|u1", "fortran_order": False, "shape": (1,)}, b"\1"))
    with pytest.raises(DataError, match="numpy.savez"):
        read_npz(path, ["x"])


def test_names_that_lead_elsewhere_are_not_followed(tmp_path):
    path = tmp_path / "data.npz"
    outside = npy({"descr": "|u1", "fortran_order": False, "shape": (1,)}, b"\1")
    with zipfile.ZipFile(path, "w") as file:
        for name in ("../x.npy", "/tmp/x.npy", "sub/x.npy"):
            file.writestr(name, outside)
    with pytest.raises(DataError, match="lacks the array x"):
        read_npz(path, ["x"])
    assert list(tmp_path.iterdir()) == [path]


def test_truncated_and_foreign_files_are_named(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(1000))
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"", b"not a zip file", content[:-1]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="data.npz"):
            read_npz(path, ["x"])
    damaged = bytearray(content)
    damaged[300] ^= 0xFF  # the checksum of the member no longer holds
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="data.npz cannot be read"):
        read_npz(path, ["x"])


@given(position=st.integers(0, 700), value=st.integers(0, 255))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_changed_byte_of_an_npz_file_is_refused_or_harmless(place, position, value):
    path = place.with_suffix(".changed.npz")
    np.savez(path, x=np.arange(40), y=np.arange(3.0))
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(content)
    try:
        x, y = read_npz(path, ["x", "y"])
    except DataError:
        return
    np.testing.assert_array_equal(x, np.arange(40))
    np.testing.assert_array_equal(y, np.arange(3.0))
