"""The format of a recording: what ``recording.json`` says and what a round's file looks like.

A recording is a folder with ``recording.json`` and one NumPy file a round, ``round-000000.npy``, …:
a header of exactly 128 bytes and n·d little-endian 32-bit floats in C order. The header of an
(n, d) round is a function of n and d alone, so a reader compares bytes and parses nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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


def file_name(number: int) -> str:
    """Return the name of the file of round ``number``."""
    return f"round-{number:06d}.npy"


def is_round_file(name: str) -> bool:
    """Return whether rounds are stored under names of this kind."""
    return re.fullmatch(r"round-\d{6,9}\.npy", name, re.ASCII) is not None


@dataclass(frozen=True)
class RoundEntry:
    """What the manifest says of one round: n clients, vectors of length d.

    Parameters
    ----------
    number : int
        Number of the round.
    n, d : int
        Clients, and length of a vector.
    sha256 : str
        Checksum of the array's bytes: of the file without its header.
    clip_norm : float, optional
        Clip of this round, where it differs from round to round.

    See Also
    --------
    Recording : Has them as ``entries``.

    Examples
    --------
    >>> from experiments.recording import RoundEntry
    >>> entry = RoundEntry(number=7, n=100, d=1000, sha256="0" * 64)
    >>> entry.file, entry.size
    ('round-000007.npy', 400128)
    """

    number: int
    n: int
    d: int
    sha256: str  # of the array's bytes: the file without its header
    clip_norm: float | None = None  # of this round, where it differs from round to round

    @property
    def file(self) -> str:
        """Name of the round's file."""
        return file_name(self.number)

    @property
    def size(self) -> int:
        """Bytes of the round's file."""
        return HEADER_SIZE + 4 * self.n * self.d

    def as_json(self) -> dict[str, Any]:
        """Return the entry as the manifest holds it."""
        own = {"n": self.n, "d": self.d, "dtype": "float32", "sha256": self.sha256}
        clip = {} if self.clip_norm is None else {"clip_norm": self.clip_norm}
        return {"round": self.number, "file": self.file, **own, **clip}


@dataclass(frozen=True)
class Metadata:
    """What a recording is of.

    Parameters
    ----------
    task, model : str, optional
        What is trained.
    shapes : dict of str to tuple of int
        Layers by name, in the order of the flat vector.
    clip_norm : float, optional
        Clip on the ℓ₂ norm that the rounds apply. Updates are recorded before it.
    seeds : dict of str to int
        Seeds of the run.
    versions : dict of str to str
        Packages that wrote the recording.
    notes : dict
        Anything else that JSON can hold.

    See Also
    --------
    Recording.create : Writes it.

    Examples
    --------
    >>> from experiments.recording import Metadata
    >>> Metadata(task="digits", shapes={"weight": (64, 10), "bias": (10,)}).dim
    650
    """

    task: str | None = None
    model: str | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    clip_norm: float | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)  # packages that wrote it
    notes: dict[str, Any] = field(default_factory=dict)

    def checked(self) -> Metadata:
        """Return the description as it will be read; refuse what could not be."""
        try:
            return parse_manifest(Manifest(self).to_json().encode(), MANIFEST).metadata
        except (RecordingError, TypeError, ValueError) as error:
            raise ValueError(f"the description of the recording is refused: {error}") from None

    @property
    def dim(self) -> int | None:
        """Length of a vector, where the layers are known."""
        return sum(math.prod(shape) for shape in self.shapes.values()) if self.shapes else None


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


def parse_manifest(text: bytes, where: str) -> Manifest:
    """Check every field of a manifest, found at ``where``, and return it."""
    if len(text) > MAX_MANIFEST_BYTES:
        raise RecordingError(
            f"{where} has {len(text):,} bytes, above the limit of {MAX_MANIFEST_BYTES:,}: "
            "it is not the description of a recording."
        )
    try:
        document = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{where} is not readable JSON: {error}.") from None
    check = _Checker(where)
    check.that(isinstance(document, dict), "it does not hold an object")
    check.that(document.get("format") == FORMAT, f'"format" is not "{FORMAT}"')
    version = document.get("version")
    check.that(
        version == VERSION,
        f"version {version!r} is not known to this release, which reads version {VERSION}",
    )
    metadata = Metadata(
        task=check.optional_text(document, "task"),
        model=check.optional_text(document, "model"),
        shapes=_parse_layers(document.get("layers", []), check),
        clip_norm=check.optional_positive(document, "clip_norm"),
        seeds=check.mapping(document, "seeds", int),
        versions=check.mapping(document, "versions", str),
        notes=check.mapping(document, "notes", object),
    )
    found = document.get("rounds")
    check.that(isinstance(found, list), '"rounds" is not a list')
    rounds = tuple(_parse_round(entry, check) for entry in found)
    for earlier, later in itertools.pairwise(rounds):
        check.that(
            earlier.number < later.number,
            f"round {later.number} follows round {earlier.number}; numbers must increase",
        )
    dims = {entry.d for entry in rounds} | ({metadata.dim} if metadata.dim else set())
    check.that(len(dims) <= 1, f"rounds and layers disagree on the dimension: {sorted(dims)}")
    return Manifest(metadata, rounds)


def _parse_layers(found: Any, check: _Checker) -> dict[str, tuple[int, ...]]:
    check.that(isinstance(found, list), '"layers" is not a list')
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in found:
        check.that(isinstance(layer, dict), "a layer is not an object")
        name, shape = layer.get("name"), layer.get("shape")
        check.that(isinstance(name, str) and name not in shapes, f"layer name {name!r}")
        check.that(
            isinstance(shape, list) and len(shape) <= 32 and all(_is_count(k) for k in shape),
            f"layer {name!r} has the shape {shape!r}; sizes are positive integers",
        )
        shapes[name] = tuple(shape)
    return shapes


def _parse_round(found: Any, check: _Checker) -> RoundEntry:
    check.that(isinstance(found, dict), "a round is not an object")
    number = found.get("round")
    check.that(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 10**9,
        f"round number {number!r} is not an integer >= 0",
    )
    name = file_name(number)
    check.that(
        found.get("file") == name,
        f"round {number} lies in {found.get('file')!r}; it can only lie in {name!r}",
    )
    for key in ("n", "d"):
        value = found.get(key)
        check.that(_is_count(value), f"round {number}: {key}={value!r} is not a positive integer")
    dtype, digest = found.get("dtype"), found.get("sha256")
    check.that(
        dtype == "float32",
        f"round {number}: dtype {dtype!r} is not float32 (half precision, which version 0.1 could "
        "pack, is unpacked by that version)",
    )
    check.that(
        isinstance(digest, str) and _SHA256.fullmatch(digest) is not None,
        f"round {number}: sha256 {digest!r} is not a checksum",
    )
    clip = check.optional_positive(found, "clip_norm")
    return RoundEntry(number, found["n"], found["d"], digest, clip)


@dataclass(frozen=True)
class _Checker:
    """Refuses what is wrong, in the name of the file it was found in."""

    where: str

    def that(self, holds: bool, problem: str) -> None:
        if not holds:
            raise RecordingError(
                f"{self.where} does not describe a recording: {problem[:300]}. "
                "Get the recording again from where it was made."
            )

    def optional_text(self, document: Mapping[str, Any], key: str) -> str | None:
        value = document.get(key)
        self.that(value is None or isinstance(value, str), f"{key}={value!r} is not a text")
        return value

    def optional_positive(self, document: Mapping[str, Any], key: str) -> float | None:
        value = document.get(key)
        self.that(
            value is None or _is_positive(value), f"{key}={value!r} is not a finite number > 0"
        )
        return None if value is None else float(value)

    def mapping(self, document: Mapping[str, Any], key: str, kind: type) -> dict[str, Any]:
        value = document.get(key, {})
        self.that(
            isinstance(value, dict) and all(isinstance(each, kind) for each in value.values()),
            f"{key} is not an object of {kind.__name__}",
        )
        return dict(value)


def _is_positive(value: Any) -> bool:
    """Return whether ``value`` is a finite real number above zero that a float can hold."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= sys.float_info.max


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**48


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("an object has the same key twice")
    return document
