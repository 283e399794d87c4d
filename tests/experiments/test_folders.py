"""The floor plan of experiments: small folders, and import paths that stay valid."""

from collections import Counter
from pathlib import Path

import experiments

MOST_MODULES = 16


def test_no_folder_holds_more_modules_than_a_reader_can_keep_in_mind():
    root = Path(experiments.__file__).parent
    sizes = Counter(path.parent.relative_to(root.parent) for path in root.rglob("*.py"))
    assert max(sizes.values()) <= MOST_MODULES, sizes.most_common(3)


def test_recordings_are_imported_as_before():
    from experiments.recording import Recording, RecordingError
    from experiments.recordings import recording

    assert Recording is recording.Recording
    assert RecordingError is recording.RecordingError


def test_every_public_name_of_the_package_is_there():
    for name in experiments.__all__:
        assert getattr(experiments, name).__name__ == name
