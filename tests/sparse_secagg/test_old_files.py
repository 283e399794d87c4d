"""Configurations written by version 0.1.0 are read, mean the same, and are refused when altered."""

import json
from pathlib import Path

import numpy as np
import pytest

from sparse_secagg import ClientPolicy, RefusedRoundError, RoundConfig, client_encode
from sparse_secagg.round.parts import parts_of

WRITTEN = json.loads((Path(__file__).parent / "data" / "configurations.json").read_text())
CONFIGURATIONS = WRITTEN["configurations"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_an_old_configuration_is_read_and_answered(name):
    text = CONFIGURATIONS[name]
    config = RoundConfig.from_json(text)
    assert json.loads(config.to_json()) == json.loads(text)
    assert parts_of(config).encoder.n_components_ == config.mechanism.dim
    policy = ClientPolicy(np.inf, 1.0, allow_trusted_server=True)
    message = client_encode(text, np.ones(config.dim) / 100, policy=policy)
    assert message[4:12].hex() == json.loads(text)["digest"][:16]


@pytest.mark.parametrize("version", [1, 3, "2", None, True])
def test_another_version_is_named(version):
    document = json.loads(CONFIGURATIONS["ddg"]) | {"version": version}
    with pytest.raises(RefusedRoundError, match=f"version {version}, this software speaks 2.*upd"):
        RoundConfig.from_json(json.dumps(document))
