"""Files of a recording: read with suspicion, written so that a crash leaves all of one or none."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from experiments.private_files import open_private
from experiments.recordings.format import (
    HEADER_SIZE,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Manifest,
    RecordingError,
    RoundEntry,
    npy_header,
    parse_manifest,
)

#: Bytes of updates that are converted, hashed and written at once.
_BLOCK_BYTES = 2**25

#: Beginning of the names of files that are being written.
TEMPORARY = ".recording-"


class RoundWriter:
    """One round on its way to disk; made by :meth:`Recording.writer`.

    Parameters
    ----------
    folder : Path
        The recording's folder.
    number : int
        Number of the round.
    dim : int or None
        Length of a vector, where it is known.
    file : binary file
        Open for writing; the header is written last.

    See Also
    --------
    Recording.append : Writes a round that is at hand.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from experiments import Recording
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rec = Recording.create(folder, task="example")
    ...     with rec.writer(0) as writer:
    ...         for _ in range(3):
    ...             writer.write(np.ones((2, 5)))
    ...     rec[0].shape
    (6, 5)
    """

    def __init__(self, folder: Path, number: int, dim: int | None, file: Any) -> None:
        self.number, self.n, self.d = number, 0, dim
        self._folder, self._file = folder, file
        self._sum = hashlib.sha256()
        self._file.seek(HEADER_SIZE)

    def write(self, rows: Any) -> None:
        """Add the rows of an array (k, d), a vector (d,) or a sparse matrix."""
        if not sp.issparse(rows):
            rows = np.atleast_2d(np.asarray(rows))
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise ValueError(f"rows have shape {rows.shape}; pass (k, d), one row a client.")
        if rows.dtype.kind not in "fiub":
            raise ValueError(f"rows have dtype {rows.dtype}; updates are real numbers.")
        if self.d is None:
            self.d = int(rows.shape[1])
        if rows.shape[1] != self.d:
            raise ValueError(
                f"rows have length {rows.shape[1]}, but {self._folder} is of length {self.d}."
            )
        step = max(1, _BLOCK_BYTES // (4 * self.d))
        if sp.issparse(rows):
            rows = sp.csr_array(rows)
        for start in range(0, rows.shape[0], step):
            self._write_block(_as_float32(rows[start : start + step], self.number))

    def _write_block(self, block: NDArray[np.float32]) -> None:
        try:
            self._file.write(block.data)
        except OSError as error:
            raise OSError(
                error.errno, f"round {self.number} could not be written: {error.strerror}"
            ) from error
        self._sum.update(block.data)
        self.n += len(block)

    def finish(self) -> RoundEntry:
        """Flush the round to disk under its name and return its entry."""
        if self.n == 0 or self.d is None:
            raise ValueError(f"round {self.number} has no rows; a round has at least one client.")
        entry = RoundEntry(self.number, self.n, self.d, self._sum.hexdigest())
        self._file.seek(0)
        self._file.write(npy_header(self.n, self.d))
        replace_file(self._file, self._folder / entry.file)
        return entry


def row_blocks(updates: Any) -> Iterable[Any]:
    """Return an array as one block, and blocks as they are."""
    if hasattr(updates, "shape") or sp.issparse(updates):
        return [updates]
    if isinstance(updates, str | bytes | Mapping) or not isinstance(updates, Iterable):
        raise ValueError(
            f"updates is a {type(updates).__name__}; pass an (n, d) array, a sparse matrix or an "
            "iterable of row blocks."
        )
    return updates


def _as_float32(block: Any, number: int) -> NDArray[np.float32]:
    dense = block.toarray() if sp.issparse(block) else block
    try:
        with np.errstate(over="raise"):
            return np.ascontiguousarray(dense, dtype="<f4")
    except FloatingPointError:
        raise ValueError(
            f"round {number} has finite values beyond 3.4e38, which 32-bit floats do not hold; "
            "clip them before they are recorded."
        ) from None


def read_manifest(folder: Path) -> Manifest:
    """Return the checked contents of ``recording.json``."""
    path = folder / MANIFEST
    with _open_regular(path) as file:
        # read(limit) would allocate the limit, however small the file
        size = min(os.fstat(file.fileno()).st_size, MAX_MANIFEST_BYTES + 1)
        return parse_manifest(file.read(size), str(path))


def _open_regular(path: Path) -> io.BufferedReader:
    """Open a file of the folder itself: a link could lead anywhere, a pipe would never end."""
    extra = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        file = open(  # noqa: SIM115
            path, "rb", opener=lambda name, flags: os.open(name, flags | extra)
        )
    except FileNotFoundError:
        raise RecordingError(f"{path} is missing; get the recording again.") from None
    except OSError as error:
        link = path.is_symlink()
        reason = "it is a link, and files of a recording are not" if link else error.strerror
        raise RecordingError(f"{path} cannot be read: {reason}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RecordingError(f"{path} is not a regular file.")
    return file


def open_checked(path: Path, entry: RoundEntry) -> io.BufferedReader:
    """Open a round's file; raise unless its size and header are those of the manifest."""
    file = _open_regular(path)
    try:
        size = os.fstat(file.fileno()).st_size
        if size != entry.size:
            kind = "truncated" if size < entry.size else "altered"
            raise RecordingError(
                f"{path} has {size:,} bytes in place of {entry.size:,} for {entry.n} x {entry.d} "
                f"32-bit floats: it is {kind}. Get the recording again."
            )
        if file.read(HEADER_SIZE) != npy_header(entry.n, entry.d):
            raise RecordingError(
                f"{path} does not begin with the header of {entry.n} x {entry.d} 32-bit floats in "
                "C order: it is altered. Get the recording again."
            )
        return file
    except BaseException:
        file.close()
        raise


def check_sum(path: Path, entry: RoundEntry) -> None:
    """Read a round's file once and raise unless it is the one that was written."""
    with open_checked(path, entry) as file:  # the position is behind the header
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        raise RecordingError(
            f"{path} differs from its checksum in {MANIFEST}: it is altered. "
            "Get the recording again."
        )


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[Any]:
    """Open a new file, which is gone afterwards unless it was renamed."""
    file = open_private(folder / f"{TEMPORARY}{secrets.token_hex(8)}", "x+b")
    try:
        yield file
    finally:
        file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.name)


def replace_file(file: Any, target: Path) -> None:
    """Flush a temporary file to disk and rename it: after a crash, all of it is there or none."""
    file.flush()
    os.fsync(file.fileno())
    os.replace(file.name, target)
    if os.name == "posix":  # the rename itself
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def directory_lock(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer; the lock goes with the process, so a killed run has none."""
    try:
        import fcntl
    except ImportError:  # not on this platform
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordingError(
                f"another process is recording into {folder}; wait for it, or choose another "
                "folder."
            ) from None
        yield
    finally:
        os.close(handle)
