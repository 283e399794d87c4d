"""Encoders and mechanisms of one's own, by import path, by name and as instances."""

import sys
import textwrap

import numpy as np
import pytest

from solvers.operators import as_operator
from sparse_secagg import SparseSecAgg, mechanisms
from sparse_secagg.encoders import LinearEncoder, registry
from sparse_secagg.parts import import_part, is_import_path
from sparse_secagg.rounds import RoundConfig

X = np.zeros((40, 60))
X[:, :3] = 0.4


class Signs(LinearEncoder):
    """Independent signs, scaled so that E‖Sx‖² = ‖x‖²."""

    def __init__(self, compression=2, random_state=None):
        self.compression = compression
        self.random_state = random_state

    def _make_operator(self, d, seed):
        m = int(d // self.compression)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], (m, d))
        return as_operator(signs / np.sqrt(m))


def fitted(encoder):
    return SparseSecAgg(
        encoder, epsilon=50.0, decoder="linear", random_state=1, simulation_seed=1, compression=2
    ).fit(X)


def test_an_encoder_of_ones_own_works_as_instance_and_by_path():
    by_instance = fitted(Signs(compression=2))
    by_path = fitted(f"{__name__}:Signs")
    assert np.array_equal(by_instance.mean_, by_path.mean_)
    S = Signs(2, random_state=by_path.config_.encoder_seed).fit_dimension(60).operator_
    noiseless = S.rmatvec(S.matvec(X.mean(axis=0)))
    assert np.linalg.norm(by_path.mean_ - noiseless) < 0.5 * np.linalg.norm(noiseless)


def test_a_description_from_elsewhere_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"not known here.*register"):
        registry.from_dict({"name": "never_imported:Encoder"})
    document = fitted("hadamard").config_.mechanism
    object.__setattr__(document, "mechanism", "never_imported:Mechanism")
    with pytest.raises(ValueError, match=r"not known here.*register"):
        mechanisms.from_parameters(document)
    assert "never_imported" not in sys.modules


def test_a_name_is_registered_once():
    class Mine(Signs):
        pass

    class Other(Signs):
        pass

    registry.register(Mine, "mine")
    try:
        assert isinstance(registry.get("mine", compression=3), Mine)
        assert registry.from_dict(registry.to_dict(Mine(3))).compression == 3
        registry.register(Mine, "mine")
        with pytest.raises(ValueError, match="taken by Mine"):
            registry.register(Other, "mine")
    finally:
        del registry._REGISTRY["mine"]


def test_a_mechanism_of_ones_own_by_path(tmp_path, monkeypatch):
    source = """
    from sparse_secagg.mechanisms import DiscreteGaussian, names

    class Louder(DiscreteGaussian):
        name = "louder"
    """
    (tmp_path / "louder_mechanism.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        made = SparseSecAgg(
            "hadamard", mechanism="louder_mechanism:Louder", random_state=0, simulation_seed=0
        ).fit(X)
        assert made.config_.mechanism.mechanism == "louder"
        with pytest.raises(ValueError, match="taken by Louder"):
            mechanisms.register(mechanisms.Skellam, "louder")
    finally:
        mechanisms._REGISTRY.pop("louder", None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module_here:Encoder", "no_such_module_here"),
        ("math:Encoder", "has no 'Encoder'"),
        ("math:sqrt", "must be a class that derives from LinearEncoder"),
        ("fractions:Fraction", "must be a class that derives from LinearEncoder"),
    ],
)
def test_what_is_wrong_with_a_path_is_said(path, message):
    with pytest.raises(ValueError, match=message):
        import_part(path, "encoder", LinearEncoder)


def test_import_paths_are_told_from_names_and_options():
    assert is_import_path("package.module:Class")
    assert is_import_path("module:Class.Inner")
    for text in ("count_sketch", "amp:low_rank,debias", "a b:C", ":C", "m:"):
        assert not is_import_path(text)


def test_a_configuration_with_an_own_encoder_is_read_again():
    config = fitted(Signs(2)).config_
    assert RoundConfig.from_json(config.to_json()) == config
