"""A recording as one file for sharing: a ZIP of ``recording.json`` and the rounds' files.

The archive may come from anybody. Members are found by the names that the manifest's rounds must
have, never extracted by the names they claim; declared sizes must be those of the manifest; and
what is read is bounded by what was declared.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.private_files import open_private
from experiments.recordings.format import (
    DTYPES,
    HEADER_SIZE,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Manifest,
    Metadata,
    RecordingError,
    RoundEntry,
    npy_header,
    parse_manifest,
)

_BLOCK_BYTES = 2**25
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

#: Largest power of two that leaves room below the largest half-precision number, 65504.
_LARGEST_HALF = 2.0**15

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class Rows(Protocol):
    """Where the rows of a round go, block after block."""

    def write(self, rows: NDArray[np.floating], /) -> None:
        """Take some rows."""


class Rounds(Protocol):
    """Where unpacked rounds go: a recording that is being written."""

    def writer(self, round: int, *, clip_norm: float | None = None) -> AbstractContextManager[Rows]:
        """Begin a round."""


def pack(rounds: Iterable[NDArray[np.float32]], manifest: Manifest, path: Path, dtype: str) -> Path:
    """Write a recording as one compressed file; see :meth:`Recording.pack`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} must be one of {', '.join(DTYPES)}.")
    if path.exists():
        raise FileExistsError(f"{path} exists; choose another name or remove it.")
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with (
            open_private(temporary, "xb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as archive,
        ):
            entries = [
                _pack_round(archive, X, entry, dtype) for X, entry in zip(rounds, manifest.rounds)
            ]
            archive.writestr(MANIFEST, replace(manifest, rounds=tuple(entries)).to_json())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _pack_round(
    archive: zipfile.ZipFile, X: NDArray[np.float32], entry: RoundEntry, dtype: str
) -> RoundEntry:
    scale = _half_scale(X) if dtype == "float16" else 1.0
    digest = hashlib.sha256()
    with archive.open(entry.file, "w", force_zip64=True) as member:
        member.write(npy_header(entry.n, entry.d, dtype))
        for rows in _row_blocks(X):
            data = np.ascontiguousarray(rows / np.float32(scale), dtype=DTYPES[dtype]).data
            member.write(data)
            digest.update(data)
    return replace(entry, dtype=dtype, scale=scale, sha256=digest.hexdigest())


def _half_scale(X: NDArray[np.float32]) -> float:
    """Return the power of two by which to divide so that the largest entry is near 2¹⁵."""
    largest = 0.0
    for rows in _row_blocks(X):
        finite = np.abs(rows[np.isfinite(rows)])
        largest = max(largest, float(finite.max(initial=0.0)))
    if largest == 0.0:
        return 1.0
    # the quotient must be a number that 32-bit floats hold, too
    exponent = np.clip(np.ceil(np.log2(largest)) - np.log2(_LARGEST_HALF), -120, 120)
    return float(2.0**exponent)


def _row_blocks(X: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    step = max(1, _BLOCK_BYTES // (4 * X.shape[1]))
    return (X[start : start + step] for start in range(0, len(X), step))


def unpack(
    path: Path, folder: Path, max_bytes: int, create: Callable[[Path, Metadata], Rounds]
) -> None:
    """Make a folder of a packed recording; see :meth:`Recording.unpack`.

    ``create`` makes an empty recording in a folder, which the rounds are then written to.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists; unpack into a new folder.")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise RecordingError(f"{path} is not a packed recording: {error}.") from None
    with archive:
        members = _members(archive, path)
        manifest = _manifest(archive, members, path)
        _check_sizes(manifest, members, path, max_bytes, folder)
        partial = folder.with_name(f".{folder.name}-{secrets.token_hex(8)}")
        try:
            recording = create(partial, manifest.metadata)
            _unpack_rounds(archive, members, manifest, recording, path)
            os.rename(partial, folder)
        except _DAMAGED as error:
            raise RecordingError(f"{path} is damaged: {error}.") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if info.filename in members:
            raise RecordingError(f"{path} holds {info.filename!r} twice.")
        if info.compress_type not in _METHODS or info.flag_bits & 0x1:
            raise RecordingError(
                f"{path}: {info.filename!r} is encrypted or compressed by another method than "
                "deflate."
            )
        members[info.filename] = info
    return members


def _manifest(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], path: Path
) -> Manifest:
    if MANIFEST not in members:
        raise RecordingError(f"{path} holds no {MANIFEST}: it is not a packed recording.")
    if members[MANIFEST].file_size > MAX_MANIFEST_BYTES:
        raise RecordingError(
            f"{path}: {MANIFEST} would have {members[MANIFEST].file_size:,} bytes, "
            f"above the limit of {MAX_MANIFEST_BYTES:,}."
        )
    try:
        with archive.open(members[MANIFEST]) as member:
            text = member.read(MAX_MANIFEST_BYTES + 1)
    except _DAMAGED as error:
        raise RecordingError(f"{path}: {MANIFEST} is damaged: {error}.") from None
    return parse_manifest(text, f"{path}: {MANIFEST}", packed=True)


def _check_sizes(
    manifest: Manifest,
    members: dict[str, zipfile.ZipInfo],
    path: Path,
    max_bytes: int,
    folder: Path,
) -> None:
    expected = {entry.file: entry.size for entry in manifest.rounds}
    unknown = sorted(set(members) - set(expected) - {MANIFEST})
    if unknown:
        raise RecordingError(f"{path} holds {unknown[0]!r}, which is not a file of the recording.")
    for name, size in expected.items():
        if name not in members:
            raise RecordingError(f"{path} lacks {name!r}.")
        if members[name].file_size != size:
            raise RecordingError(
                f"{path}: {name!r} has {members[name].file_size:,} bytes in place of {size:,}."
            )
    total = sum(replace(entry, dtype="float32").size for entry in manifest.rounds)
    if total > max_bytes:
        raise RecordingError(
            f"{path} would unpack to {total:,} bytes, above max_bytes={max_bytes:,}; raise "
            "max_bytes if you trust where it comes from."
        )
    free = shutil.disk_usage(folder.absolute().parent).free
    if total > free:
        raise OSError(f"{path} unpacks to {total:,} bytes and {folder.parent} has {free:,} left.")


def _unpack_rounds(
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    manifest: Manifest,
    recording: Rounds,
    path: Path,
) -> None:
    for entry in manifest.rounds:
        digest = hashlib.sha256()
        with archive.open(members[entry.file]) as member:
            if member.read(HEADER_SIZE) != npy_header(entry.n, entry.d, entry.dtype):
                raise RecordingError(
                    f"{path}: {entry.file!r} does not begin with the header of "
                    f"{entry.n} x {entry.d} {entry.dtype}."
                )
            with recording.writer(entry.number, clip_norm=entry.clip_norm) as writer:
                for rows in _read_rows(member, entry, digest):
                    writer.write(rows)
                if digest.hexdigest() != entry.sha256:
                    raise RecordingError(f"{path}: {entry.file!r} differs from its checksum.")


def _read_rows(
    member: IO[bytes], entry: RoundEntry, digest: hashlib._Hash
) -> Iterator[NDArray[np.floating]]:
    dtype = np.dtype(DTYPES[entry.dtype])
    step = max(1, _BLOCK_BYTES // (4 * entry.d))
    for start in range(0, entry.n, step):
        n = min(step, entry.n - start)
        data = member.read(n * entry.d * dtype.itemsize)
        if len(data) < n * entry.d * dtype.itemsize:
            raise EOFError(f"{entry.file!r} ends early")
        digest.update(data)
        rows = np.frombuffer(data, dtype).reshape(n, entry.d)
        yield rows if entry.scale == 1.0 else rows.astype(np.float32) * np.float32(entry.scale)
