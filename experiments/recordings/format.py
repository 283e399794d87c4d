"""The format of a recording: what ``recording.json`` says and what a round's file looks like.

A recording is a folder with ``recording.json`` and one NumPy file a round, ``round-000000.npy``, …:
a header of exactly 128 bytes and n·d little-endian 32-bit floats in C order. The header of an
(n, d) round is a function of n and d alone, so a reader compares bytes and parses nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.versions import versions

FORMAT = "sparse-secagg recording"
VERSION = 1
MANIFEST = "recording.json"
HEADER_SIZE = 128

#: A manifest of 100 000 rounds is 20 MB; beyond this it is not one of ours.
MAX_MANIFEST_BYTES = 2**28

_SHA256 = re.compile(r"[0-9a-f]{64}")


class RecordingError(ValueError):
    """A recording that is damaged, altered, or not one.

    See Also
    --------
    Recording.open : Raises it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from experiments import Recording
    >>> from experiments.recording import RecordingError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "holiday.txt").write_text("sea, sun")
    ...     try:
    ...         Recording.open(folder)
    ...     except RecordingError:
    ...         print("not a recording")
    not a recording
    """


def npy_header(n: int, d: int) -> bytes:
    """Return the 128 bytes with which NumPy's format 1.0 announces (n, d) 32-bit floats.

    >>> import io, numpy as np
    >>> np.load(io.BytesIO(npy_header(2, 3) + bytes(24))).shape
    (2, 3)
    """
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {d}), }}"
    length = HEADER_SIZE - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + f"{text:<{length - 1}}\n".encode()


@dataclass(frozen=True)
class RoundEntry:
    """What the manifest says of one round: n clients, vectors of length d."""

    number: int
    n: int
    d: int
    sha256: str  # of the array's bytes: the file without its header
    clip_norm: float | None = None  # of this round, where it differs from round to round

    @property
    def file(self) -> str:
        """Name of the round's file."""
        return f"round-{self.number:06d}.npy"

    def as_json(self) -> dict[str, Any]:
        """Return the entry as the manifest holds it."""
        own = {"n": self.n, "d": self.d, "dtype": "float32", "sha256": self.sha256}
        clip = {} if self.clip_norm is None else {"clip_norm": self.clip_norm}
        return {"round": self.number, "file": self.file, **own, **clip}

    def check(self) -> None:
        """Raise ValueError for what no round can be."""
        _expect(_is_count(self.number + 1), f"round number {self.number!r}")
        for name in ("n", "d"):
            _expect(_is_count(getattr(self, name)), f"{name}={getattr(self, name)!r}")
        _expect(bool(_SHA256.fullmatch(self.sha256)), f"sha256={self.sha256!r}")
        _expect(_is_clip(self.clip_norm), f"clip_norm={self.clip_norm!r}")


@dataclass(frozen=True)
class Metadata:
    """What a recording is of."""

    task: str | None = None  # what is trained
    model: str | None = None
    #: Layers by name, in the order of the flat vector.
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    clip_norm: float | None = None  # ℓ₂ clip that the rounds apply; updates are recorded before it
    seeds: dict[str, int] = field(default_factory=dict)  # of the run
    versions: dict[str, str] = field(default_factory=versions)  # packages that wrote it
    notes: dict[str, Any] = field(default_factory=dict)  # anything else that JSON can hold

    @property
    def dim(self) -> int | None:
        """Length of a vector, where the layers are known."""
        return sum(map(math.prod, self.shapes.values())) if self.shapes else None

    def check(self) -> None:
        """Raise ValueError for what no description can be."""
        for name, text in (("task", self.task), ("model", self.model)):
            _expect(text is None or isinstance(text, str), f"{name}={text!r} is not a text")
        for layer, shape in self.shapes.items():
            whole = isinstance(layer, str) and all(map(_is_count, shape))
            _expect(whole, f"layer {layer!r} has the shape {shape!r}")
        _expect(_is_clip(self.clip_norm), f"clip_norm={self.clip_norm!r} is not a number above 0")
        for name, kind in (("seeds", int), ("versions", str), ("notes", object)):
            found = getattr(self, name)
            whole = all(isinstance(value, kind) for value in found.values())
            _expect(whole, f"{name} is not an object of {kind.__name__}")


@dataclass(frozen=True)
class Manifest:
    """The contents of ``recording.json``."""

    metadata: Metadata
    rounds: tuple[RoundEntry, ...] = ()

    def to_json(self) -> str:
        """Return the manifest as it is written."""
        meta = self.metadata
        document = {
            "format": FORMAT,
            "version": VERSION,
            "task": meta.task,
            "model": meta.model,
            "layers": [{"name": name, "shape": list(shape)} for name, shape in meta.shapes.items()],
            "clip_norm": meta.clip_norm,
            "seeds": meta.seeds,
            "versions": meta.versions,
            "notes": meta.notes,
            "rounds": [entry.as_json() for entry in self.rounds],
        }
        return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def check(self) -> None:
        """Raise ValueError for what no recording can be."""
        self.metadata.check()
        for entry in self.rounds:
            entry.check()
        for earlier, later in itertools.pairwise(self.rounds):
            order = f"round {later.number} follows round {earlier.number}; numbers must increase"
            _expect(earlier.number < later.number, order)
        dims = {entry.d for entry in self.rounds} | ({self.metadata.dim} - {None})
        _expect(len(dims) <= 1, f"rounds and layers disagree on the dimension: {dims}")


def read_manifest(folder: Path) -> Manifest:
    """Return the contents of ``recording.json``, where they are as they would be written."""
    path = folder / MANIFEST
    size = regular_size(path)
    if size > MAX_MANIFEST_BYTES:
        raise _refused(path, f"it has {size:,} bytes, above the limit of {MAX_MANIFEST_BYTES:,}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
        found = _parse(document)
        found.check()
        _expect(json.loads(found.to_json()) == document, "it is not as it would be written")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _refused(path, str(error)) from None
    return found


def _parse(document: Mapping[str, Any]) -> Manifest:
    """Return a manifest of a document, which may still hold anything."""
    version = document.get("version")
    _expect(document.get("format") == FORMAT, f'"format" is not "{FORMAT}"')
    _expect(version == VERSION, f"version {version!r} is not {VERSION}, which is read here")
    if any(entry["dtype"] == "float16" for entry in document["rounds"]):
        raise ValueError(
            "half precision, which version 0.1 could pack, is unpacked by that version"
        )
    plain = ("task", "model", "clip_norm", "seeds", "versions", "notes")
    shapes = {layer["name"]: tuple(layer["shape"]) for layer in document["layers"]}
    metadata = Metadata(shapes=shapes, **{name: document[name] for name in plain})
    rounds = (
        RoundEntry(each["round"], each["n"], each["d"], each["sha256"], each.get("clip_norm"))
        for each in document["rounds"]
    )
    return Manifest(metadata, tuple(rounds))


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _refused(path: Path, problem: str) -> RecordingError:
    return RecordingError(
        f"{path} does not describe a recording: {problem[:300]}. Get the recording again from "
        "where it was made."
    )


def _is_clip(value: Any) -> bool:
    """Return whether a value is None or a finite number above zero."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and 0 < value <= sys.float_info.max)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**48


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def regular_size(path: Path) -> int:
    """Return the size of a file of the folder itself: a link could lead anywhere."""
    if path.is_symlink():
        raise RecordingError(f"{path} cannot be read: it is a link, and no file of a recording is.")
    if not path.exists():
        raise RecordingError(f"{path} is missing; get the recording again.")
    if not path.is_file():
        raise RecordingError(f"{path} is not a regular file.")
    return path.stat().st_size


def check_file(path: Path, entry: RoundEntry, *, contents: bool = False) -> None:
    """Raise unless a round's file has the size and the header, or all the contents, recorded."""
    size, expected = regular_size(path), HEADER_SIZE + 4 * entry.n * entry.d
    if size != expected:
        kind = "truncated" if size < expected else "altered"
        raise RecordingError(
            f"{path} has {size:,} bytes in place of {expected:,} for {entry.n} x {entry.d} "
            f"32-bit floats: it is {kind}. Get the recording again."
        )
    with path.open("rb") as file:
        if file.read(HEADER_SIZE) != npy_header(entry.n, entry.d):
            raise RecordingError(
                f"{path} does not begin with the header of {entry.n} x {entry.d} 32-bit floats in "
                "C order: it is altered. Get the recording again."
            )
        if contents and hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise RecordingError(
                f"{path} differs from its checksum in {MANIFEST}: it is altered. "
                "Get the recording again."
            )
