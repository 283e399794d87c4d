"""Recordings: the updates that clients would send, round by round, on disk and append-only.

Every round is written to a temporary file, flushed to disk and renamed; the manifest is replaced
last, in the same way. A run that is killed loses at most the round it was writing. See
:mod:`experiments.recordings.format` for what lies in the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from experiments.recordings.format import (
    HEADER_SIZE,
    MANIFEST,
    Manifest,
    Metadata,
    RecordingError,
    RoundEntry,
    check_file,
    npy_header,
    read_manifest,
)
from sparse_secagg.private_files import check_file as check_writable
from sparse_secagg.private_files import make_folder, replacing

__all__ = ["Recording", "RecordingError"]

#: Bytes of updates that are converted, hashed and written at once.
_BLOCK_BYTES = 2**25


class Recording:
    """The updates of many rounds of training, one memory-mapped array a round.

    Make one with :meth:`open` or :meth:`create`. ``len(rec)`` is the number of rounds, ``rec[k]``
    the k-th of them, an (n, d) read-only memory map of 32-bit floats; iteration yields them in
    order. A recording of exactly one round is an array itself: ``SparseSecAgg().fit(rec)``.

    Updates are stored as they come, before clipping; 64-bit floats are rounded to 32 bits. NaN and
    infinities are kept, since a client may send them: the pipeline counts such a client as zero.

    Parameters
    ----------
    path : path
        The folder. Use :meth:`open` or :meth:`create`.
    manifest : Manifest
        What the folder says of itself.
    verify : bool
        Whether checksums are compared when a round is first read.

    Attributes
    ----------
    path : Path
        The folder.
    metadata : Metadata
        Task, model, layers, clip, seeds, versions and notes.

    See Also
    --------
    RecordingCell : A recorded round in a sweep.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> rec = Recording.create(folder.name, task="example", shapes={"weight": (2, 3)})
    >>> rec.append(0, np.ones((4, 6)))
    >>> rec = Recording.open(folder.name)
    >>> len(rec), rec[0].shape, rec.shapes
    (1, (4, 6), {'weight': (2, 3)})
    """

    def __init__(self, path: str | os.PathLike[str], manifest: Manifest, verify: bool) -> None:
        self.path = Path(path)
        self._manifest = manifest
        self._verify = verify
        self._verified: set[int] = set()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Recording:
        """Open a recording; where nothing is yet, an empty one that the first append creates.

        Parameters
        ----------
        path : path
            A folder. The size and header of every file in it are checked.
        verify : bool, default=True
            Compute a round's checksum when it is first read: one pass over the file. Switch it off
            for a large file that is known to be good.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise RecordingError(
                f"{path} is a file, and a recording is a folder; one that was packed as a .zip is "
                "opened once it is unzipped."
            )
        if not (path / MANIFEST).exists():
            there = [p.name for p in path.iterdir()] if path.exists() else []
            foreign = [name for name in there if not name.endswith(".draft")]
            if foreign:
                raise RecordingError(
                    f"{path} holds other files ({min(foreign)!r}, …) but no {MANIFEST}: it is not "
                    "a recording. Choose an empty or a new folder."
                )
            return cls(path, Manifest(Metadata()), verify)
        manifest = read_manifest(path)
        for entry in manifest.rounds:
            check_file(path / entry.file, entry)
        return cls(path, manifest, verify)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        task: str | None = None,
        model: str | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        clip_norm: float | None = None,
        seeds: Mapping[str, int] | None = None,
        notes: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> Recording:
        """Create an empty recording that says what it is of.

        Parameters
        ----------
        path : path
            A folder; it is created, and refused now if it cannot be written to.
        task, model : str, optional
            What is trained.
        shapes : mapping of str to tuple of int, optional
            Layers by name, in the order of the flat vector.
        clip_norm : float, optional
            ℓ₂ clip that the rounds apply to the updates. Updates are recorded before it.
        seeds : mapping of str to int, optional
            Seeds of the run.
        notes : mapping, optional
            Anything else that JSON can hold.
        exist_ok : bool, default=False
            Go on with a recording that is there, if it is of the same layers and task.
        """
        metadata = Metadata(
            task=task,
            model=model,
            shapes={str(name): tuple(map(int, shape)) for name, shape in (shapes or {}).items()},
            clip_norm=clip_norm,
            seeds={str(name): int(seed) for name, seed in (seeds or {}).items()},
            notes=dict(notes or {}),
        )
        recording = cls(path, Manifest(metadata), verify=True)
        try:
            recording._manifest.check()
            recording._manifest.to_json()
        except (TypeError, ValueError) as error:
            raise ValueError(f"the description of the recording is refused: {error}") from None
        if not (recording.path / MANIFEST).exists():
            cls.open(path)  # refuses a folder that holds other files
            with recording._locked():
                recording._commit(recording._manifest)
            return recording
        if not exist_ok:
            raise FileExistsError(
                f"{path} already holds a recording; choose another folder, or append to it by "
                "Recording.open."
            )
        found = cls.open(path)
        for name in ("task", "model", "shapes"):
            mine, theirs = getattr(metadata, name), getattr(found.metadata, name)
            if mine != theirs:
                raise ValueError(
                    f"{path} is of {name}={theirs!r}, not of {name}={mine!r}; record elsewhere."
                )
        return found

    @property
    def metadata(self) -> Metadata:
        """Task, model, layers, clip, seeds, versions and notes."""
        return self._manifest.metadata

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Layers by name, in the order of the flat vector; empty where not known."""
        return dict(self._manifest.metadata.shapes)

    @property
    def rounds(self) -> list[int]:
        """Numbers of the recorded rounds, in increasing order."""
        return [entry.number for entry in self._manifest.rounds]

    @property
    def entries(self) -> tuple[RoundEntry, ...]:
        """Number, size, clip and checksum of each round."""
        return self._manifest.rounds

    def clip_norm(self, k: int) -> float | None:
        """Return the clip of the k-th round, or None where none was recorded."""
        own = self._entry(k).clip_norm
        return self.metadata.clip_norm if own is None else own

    def __len__(self) -> int:
        return len(self._manifest.rounds)

    def __getitem__(self, k: int) -> np.memmap[Any, np.dtype[np.float32]]:
        entry = self._entry(k)
        path = self.path / entry.file
        check_file(path, entry, contents=self._verify and entry.number not in self._verified)
        self._verified.add(entry.number)
        return np.memmap(path, dtype="<f4", mode="r", offset=HEADER_SIZE, shape=(entry.n, entry.d))

    def __iter__(self) -> Iterator[np.memmap[Any, np.dtype[np.float32]]]:
        return (self[k] for k in range(len(self)))

    def verify(self) -> None:
        """Compare every round with its checksum; name and refuse the first that differs."""
        for entry in self._manifest.rounds:
            check_file(self.path / entry.file, entry, contents=True)
            self._verified.add(entry.number)

    def _entry(self, k: int) -> RoundEntry:
        try:
            return self._manifest.rounds[k]
        except IndexError:
            numbered = f", numbered {self.rounds[0]} to {self.rounds[-1]}" if len(self) else ""
            raise IndexError(
                f"rec[{k}]: {self.path} holds {len(self)} rounds{numbered}; rec[k] is the k-th of "
                "them, from 0."
            ) from None

    def __repr__(self) -> str:
        sizes = f", {self.entries[-1].n:,} x {self.entries[-1].d:,} the last" if len(self) else ""
        task = f"{self.metadata.task}: " if self.metadata.task else ""
        return f"<Recording {str(self.path)!r}, {task}{len(self)} rounds{sizes}>"

    def _only_round(self) -> np.memmap[Any, np.dtype[np.float32]]:
        if len(self) != 1:
            raise ValueError(
                f"{self.path} holds {len(self)} rounds; only a recording of one round is an array. "
                "Use rec[k], the k-th round."
            )
        return self[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._only_round(), dtype=dtype, copy=copy)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d) of the only round."""
        n, d = self._only_round().shape
        return n, d

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """32-bit floats."""
        return self._only_round().dtype

    @property
    def ndim(self) -> int:
        """2, of the only round."""
        return self._only_round().ndim

    def append(self, round: int, updates: Any, *, clip_norm: float | None = None) -> None:
        """Write one round and flush it to disk.

        Parameters
        ----------
        round : int
            Its number, above all that are there.
        updates : array, memory map, sparse matrix, or iterable of row blocks
            One row a client: (n, d). Blocks are (k, d) or (d,) arrays or sparse matrices, taken one
            by one, so that a round larger than memory can be written.
        clip_norm : float, optional
            The clip of this round, where it changes from round to round.
        """
        with self._locked():
            if (self.path / MANIFEST).exists():  # another process may have appended
                self._manifest = read_manifest(self.path)
            else:  # from now on the folder is a recording, and files in it are ours
                self._commit(self._manifest)
            number = self._check_number(round)
            if clip_norm is not None and not (clip_norm > 0 and math.isfinite(clip_norm)):
                raise ValueError(f"clip_norm={clip_norm!r} must be a finite number > 0.")
            self._clean()
            rounds = self._manifest.rounds
            d, n, digest = rounds[0].d if rounds else self.metadata.dim, 0, hashlib.sha256()
            with replacing(self.path / RoundEntry(number, 0, 0, "").file) as file:
                file.seek(HEADER_SIZE)
                for block in _blocks(updates, number):
                    d = block.shape[1] if d is None else d
                    if block.shape[1] != d:
                        raise ValueError(
                            f"rows have length {block.shape[1]}, but {self.path} is of length {d}."
                        )
                    file.write(block.data)
                    digest.update(block.data)
                    n += len(block)
                if not n or d is None:
                    raise ValueError(f"round {number} has no rows; it needs at least one client.")
                file.seek(0)
                file.write(npy_header(n, d))
            entry = RoundEntry(number, n, d, digest.hexdigest(), clip_norm)
            self._commit(replace(self._manifest, rounds=(*rounds, entry)))
            self._verified.add(number)

    def _check_number(self, round: int) -> int:
        number = int(round)
        if number != round or not 0 <= number < 10**9:
            raise ValueError(f"round={round!r} must be an integer from 0 to 999,999,999.")
        if number in self.rounds:
            raise ValueError(
                f"round {number} is already in {self.path}, and recordings are append-only; "
                "use the next number, or record into another folder."
            )
        if self.rounds and number < self.rounds[-1]:
            raise ValueError(
                f"round {number} comes after round {self.rounds[-1]} in {self.path}; "
                "rounds are recorded in increasing order."
            )
        return number

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Create the folder, see that it can be written to, and keep other writers out."""
        try:
            make_folder(self.path)
            check_writable(self.path / ".probe.draft")
        except OSError as error:
            raise type(error)(
                error.errno,
                f"cannot record into {self.path}: {error.strerror}. Choose a folder that can be "
                "written to",
            ) from error
        with _lock(self.path):
            yield

    def _clean(self) -> None:
        """Remove what killed runs left: drafts, and files of rounds never committed."""
        known = {entry.file for entry in self._manifest.rounds}
        for path in self.path.iterdir():
            unfinished = path.match("round-*.npy") and path.name not in known
            if path.name.endswith(".draft") or unfinished:
                path.unlink()

    def _commit(self, manifest: Manifest) -> None:
        with replacing(self.path / MANIFEST) as file:
            file.write(manifest.to_json().encode())
        self._manifest = manifest


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer; the lock goes with the process, so a killed run has none."""
    try:
        import fcntl
    except ImportError:  # not on this platform
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RecordingError(
            f"another process is recording into {folder}; wait for it, or choose another folder."
        ) from None
    finally:
        os.close(handle)


def _blocks(updates: Any, number: int) -> Iterator[NDArray[np.float32]]:
    """Yield updates, an array or row blocks, as blocks of 32-bit floats of limited size."""
    whole = hasattr(updates, "shape")
    if not whole and (isinstance(updates, str | Mapping) or not isinstance(updates, Iterable)):
        raise ValueError(
            f"updates is a {type(updates).__name__}; pass an (n, d) array, a sparse matrix or an "
            "iterable of row blocks."
        )
    for given in [updates] if whole else updates:
        rows: Any = sp.csr_array(given) if sp.issparse(given) else np.asarray(given)
        if rows.ndim == 1 and not whole:
            rows = rows[None, :]
        if rows.ndim != 2 or 0 in rows.shape:
            raise ValueError(f"updates has rows of shape {rows.shape}; pass (n, d), n and d >= 1.")
        if rows.dtype.kind not in "fiub":
            raise ValueError(f"updates have dtype {rows.dtype}; they are real numbers.")
        step = max(1, _BLOCK_BYTES // (4 * rows.shape[1]))
        for start in range(0, rows.shape[0], step):
            part = rows[start : start + step]
            try:
                with np.errstate(over="raise"):
                    dense = part.toarray() if sp.issparse(part) else part
                    yield np.ascontiguousarray(dense, dtype="<f4")
            except FloatingPointError:
                raise ValueError(
                    f"round {number} has finite values beyond 3.4e38, which 32-bit floats do not "
                    "hold; clip them before they are recorded."
                ) from None
