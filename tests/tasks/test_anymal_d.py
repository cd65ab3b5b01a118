# SPDX-License-Identifier: Apache-2.0
"""The flat task of ANYmal D, from rows of a log and networks in the published layout to a policy; no simulator."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run
from tests.interop.test_rwm import STATISTICS, written


def rows(path: Path, frames: int = 90) -> Path:
    """Write rows of a robot that trembles about its usual state, in two episodes that end in a failure."""
    rng, mean, std = np.random.default_rng(0), np.array(STATISTICS.state_mean), np.array(STATISTICS.state_std)
    found, state = [], mean
    for frame in range(2 * frames):
        state = mean + 0.9 * (state - mean) + 0.1 * std * rng.normal(size=45)
        events = [*rng.integers(0, 2, 8), frame % frames == frames - 1]
        found.append([*state, *(0.3 * rng.normal(size=12)), *events])
    np.savetxt(path, np.array(found, dtype=float), delimiter=",")
    return path


@pytest.mark.slow
def test_a_policy_is_trained_in_published_networks_from_rows(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rsl_rl")
    monkeypatch.chdir(tmp_path)
    log = ["import", str(rows(tmp_path / "walks.csv")), "--reader", "rwm-csv", "--robot", "anymal-d", "--out", "w.h5"]
    assert run([*log, "--split", "train"]) == 0
    written(tmp_path / "m.pt")
    assert run(["import", "m.pt", "--model", "rwm", "--robot", "anymal-d", "--out", "rwm"]) == 0
    settings = tmp_path / "short.yaml"
    settings.write_text("{worlds: 8, horizon: 4, minibatches: 2, iterations: 1, evaluations: 1, evaluation_worlds: 4}")
    train = ["policy", "train", "anymal-d-flat", "--dynamics", "rwm", "--starts", "w.h5", "--out", "policy"]
    assert run([*train, "--settings", str(settings)]) == 0
    capsys.readouterr()
    assert run(["generate", "anymal-d", "--transitions", "10", "--out", "data.h5"]) == 2
    said = capsys.readouterr().err
    assert "has no asset, so that it cannot be simulated" in said
    assert said.count("\n") == 1
