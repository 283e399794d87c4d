"""A recording as one file for sharing: a ZIP of ``recording.json`` and the rounds' files.

The archive may come from anybody. Members are found by the names that the manifest's rounds must
have, never extracted by the names they claim; declared sizes must be those of the manifest; and
what is read is bounded by what was declared. Earlier versions could store half precision, scaled
by a power of two: such archives are read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

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
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def pack(folder: Path, manifest: Manifest, path: Path) -> Path:
    """Write a recording as one compressed file; see :meth:`Recording.pack`."""
    if path.exists():
        raise FileExistsError(f"{path} exists; choose another name or remove it.")
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with (
            open_private(temporary, "xb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as archive,
        ):
            for entry in manifest.rounds:
                archive.write(folder / entry.file, entry.file)
            archive.writestr(MANIFEST, manifest.to_json())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def unpack(
    path: Path, folder: Path, max_bytes: int, create: Callable[[Path, Metadata], Any]
) -> None:
    """Make a folder of a packed recording; see :meth:`Recording.unpack`.

    ``create`` makes an empty recording in a folder, which the rounds are then written to.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists; unpack into a new folder.")
    partial = folder.with_name(f".{folder.name}-{secrets.token_hex(8)}")
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive, path)
            _check_members(manifest, archive, path)
            _check_room(manifest, path, max_bytes, folder)
            recording = create(partial, manifest.metadata)
            for entry in manifest.rounds:
                with recording.writer(entry.number, clip_norm=entry.clip_norm) as writer:
                    for rows in _rows(archive, entry, path):
                        writer.write(rows)
        os.rename(partial, folder)
    except _DAMAGED as error:
        raise RecordingError(f"{path} is damaged, or no packed recording: {error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    if MANIFEST not in archive.namelist():
        raise RecordingError(f"{path} holds no {MANIFEST}: it is not a packed recording.")
    with archive.open(MANIFEST) as member:
        return parse_manifest(member.read(MAX_MANIFEST_BYTES + 1), f"{path}: {MANIFEST}", True)


def _check_members(manifest: Manifest, archive: zipfile.ZipFile, path: Path) -> None:
    """Raise unless the archive holds the manifest, its rounds in their sizes, and no more."""
    expected = {entry.file: entry.size for entry in manifest.rounds}
    seen: set[str] = set()
    for info in archive.infolist():
        name = info.filename
        if name in seen:
            raise RecordingError(f"{path} holds {name!r} twice.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RecordingError(f"{path}: {name!r} is compressed by another method than deflate.")
        if name not in expected and name != MANIFEST:
            raise RecordingError(f"{path} holds {name!r}, which is not a file of the recording.")
        if info.file_size != expected.get(name, info.file_size):
            raise RecordingError(
                f"{path}: {name!r} has {info.file_size:,} bytes in place of {expected[name]:,}."
            )
        seen.add(name)
    for name in expected.keys() - seen:
        raise RecordingError(f"{path} lacks {name!r}.")


def _check_room(manifest: Manifest, path: Path, max_bytes: int, folder: Path) -> None:
    total = sum(replace(entry, dtype="float32").size for entry in manifest.rounds)
    if total > max_bytes:
        raise RecordingError(
            f"{path} would unpack to {total:,} bytes, above max_bytes={max_bytes:,}; raise "
            "max_bytes if you trust where it comes from."
        )
    free = shutil.disk_usage(folder.absolute().parent).free
    if total > free:
        raise OSError(f"{path} unpacks to {total:,} bytes and {folder.parent} has {free:,} left.")


def _rows(
    archive: zipfile.ZipFile, entry: RoundEntry, path: Path
) -> Iterator[NDArray[np.floating]]:
    """Yield the rows of a round block by block; at the end they must be those of its checksum."""
    dtype, digest = np.dtype(DTYPES[entry.dtype]), hashlib.sha256()
    step = max(1, _BLOCK_BYTES // (4 * entry.d))
    with archive.open(entry.file) as member:
        if member.read(HEADER_SIZE) != npy_header(entry.n, entry.d, entry.dtype):
            raise RecordingError(
                f"{path}: {entry.file!r} does not begin with the header of {entry.n} x {entry.d} "
                f"{entry.dtype}."
            )
        for start in range(0, entry.n, step):
            n = min(step, entry.n - start)
            data = _read(member, n * entry.d * dtype.itemsize)
            digest.update(data)
            rows = np.frombuffer(data, dtype).reshape(n, entry.d)
            yield rows if entry.scale == 1.0 else rows.astype(np.float32) * np.float32(entry.scale)
    if digest.hexdigest() != entry.sha256:
        raise RecordingError(f"{path}: {entry.file!r} differs from its checksum.")


def _read(member: IO[bytes], size: int) -> bytes:
    data = member.read(size)
    if len(data) < size:
        raise EOFError("a round ends early")
    return data
