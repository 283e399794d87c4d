"""Where :class:`~experiments.recordings.recording.Recording` was; the import stays valid."""

from experiments.recordings.recording import (
    Metadata,
    Recording,
    RecordingError,
    RoundEntry,
    RoundWriter,
)

__all__ = ["Metadata", "Recording", "RecordingError", "RoundEntry", "RoundWriter"]
