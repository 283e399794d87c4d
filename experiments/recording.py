"""Recordings by the short import path: ``from experiments.recording import Recording``."""

from experiments.recordings.recording import Recording, RecordingError

__all__ = ["Recording", "RecordingError"]
