# SPDX-License-Identifier: Apache-2.0
"""Logs on the command line: `neurodyn policy log`, and rows through `neurodyn import`."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run
from neurodyn.core import artifacts
from neurodyn.data.store import Store
from neurodyn.policy.artifact import PolicyNetwork, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import load

pytest.importorskip("rsl_rl")


def _policy(folder: Path, task: str = "anymal-velocity") -> Path:
    """Write a policy whose actions are all zero."""
    settings = NetworkSettings(hidden=(4,))
    config = policy_config(load(task), settings)
    network = PolicyNetwork(len(config.observations), len(config.actions), settings, config.limit)
    for weights in network.requires_grad_(False).parameters():
        weights.zero_()
    save_policy(folder, config, network)
    return folder


@pytest.mark.slow
def test_a_log_is_written_as_a_store_and_as_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("newton")
    out, rows = tmp_path / "log.h5", tmp_path / "log.csv"
    given = ["policy", "log", str(_policy(tmp_path / "still")), "--out", str(out), "--csv", str(rows)]
    # Without noise it stands still, so that nobody falls and all episodes are as long as declared.
    assert run([*given, "--transitions", "1000", "--worlds", "2", "--noise", "0"]) == 0
    store = Store.open(out)
    assert store.header.spec.control_kind == "target"
    assert int(store.table["length"].sum()) >= 1000
    before = out.read_bytes()
    assert run(given) == 2
    assert "log.h5: already exists; valid: another --out, or --overwrite" in capsys.readouterr().err
    assert out.read_bytes() == before
    again = tmp_path / "again.h5"
    assert run(["import", str(rows), "--reader", "rwm-csv", "--robot", "anymal-c", "--out", str(again)]) == 0
    np.testing.assert_allclose(Store.open(again).frames, store.frames, atol=1e-5)


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "log.h5")]
    velocity, cartpole = str(_policy(tmp_path / "a")), str(_policy(tmp_path / "b", "cartpole-swingup"))
    bad = tmp_path / "bad.csv"
    bad.write_text("1,2,3\n")
    rows = ["--reader", "rwm-csv", *out]
    for arguments, message in (
        (["policy", "log", *out], "policy log: missing POLICIES"),
        (["policy", "log", str(tmp_path / "none"), *out], "no such folder; expected a folder written by"),
        (["policy", "log", velocity, cartpole, *out], "valid: one or more policies for one task"),
        (["policy", "log", "random", *out], "random: uniformly random actions, as a policy that has learned nothing,"),
        (["policy", "log", "swing", *out], "and acts in any task; valid: --task with one of acrobot-swingup, ant-run"),
        (["policy", "log", "still", *out], "--task is missing; still: zero actions, as a policy, and"),
        (["policy", "log", cartpole, "--task", "ant-run", *out], "its task is cartpole-swingup; valid here: ant-run"),
        (["policy", "log", velocity, *out, "--csv", "rows.csv", "--coordinates"], "valid: --csv or --coordinates"),
        (["policy", "log", cartpole, *out, "--worlds", "0"], "worlds is 0; valid: at least 1"),
        (["policy", "log", cartpole, *out, "--velocity-noise", "-1"], "noise: velocity is -1"),
        (["policy", "log", cartpole, *out, "--dynamics", "none"], "no such dynamics; valid: analytic, hybrid, a run"),
        (["policy", "log", "pretrained-policy:none", *out], "no pretrained policy 'none'; valid: "),
        (["policy", "log", cartpole, *out, "--csv", "rows.csv"], "robot 'cartpole' declares no rows to log"),
        (["import", str(bad), *rows, "--robot", "anymal-c"], "row 0 has 3 columns; valid: 66 (state 45, action 12"),
        (["import", str(bad), *rows, "--robot", "cartpole"], "robot 'cartpole' declares no rows"),
        (["import", str(bad), *rows], "reads the rows of a robot; give --robot; valid: anymal-c"),
        (["import", str(bad), *rows, "--robot", "anymal-c", "--alignment", "0.1"], "--alignment is for column maps"),
    ):
        assert run(arguments) == 2
        complaint = capsys.readouterr().err.strip()
        assert message in complaint
        assert "\n" not in complaint
    assert not (tmp_path / "log.h5").exists()


def test_a_robot_without_rows_logs_coordinates_and_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("newton")
    out = tmp_path / "log.h5"
    given = ["policy", "log", "random", "still", str(_policy(tmp_path / "own", "cartpole-swingup")), "--out", str(out)]
    assert run([*given, "--transitions", "50", "--worlds", "3", "--noise", "0"]) == 0
    assert "return of random, noise included" in capsys.readouterr().out
    store = Store.open(out)
    assert store.header.groups[:2] == ("random", "still")
    (episode,) = np.flatnonzero(store.group == 1)
    torques = [store.episode(int(number))[2] for number in (0, episode)]
    assert np.abs(torques[0]).min() > 0
    assert not torques[1].any()
    assert store.header.fingerprint is not None
    assert run(["inspect", str(out), "--plot", str(tmp_path / "plot.png")]) == 0
    shown = capsys.readouterr().out
    assert "reward of a frame" in shown
    assert "mean return of random" in shown


def test_a_policy_that_ships_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("newton")
    monkeypatch.setattr(artifacts, "_POLICY_ROOT", tmp_path / "shipped")
    _policy(tmp_path / "shipped" / "swing", "cartpole-swingup")
    assert artifacts.pretrained_policy_names() == ["swing"]
    json = tmp_path / "result.json"
    monkeypatch.chdir(tmp_path)
    given = ["policy", "evaluate", "pretrained-policy:swing", "--dynamics", "analytic", "--episodes", "2"]
    assert run([*given, "--json", str(json)]) == 0
    (result,) = artifacts.read_json(json)["results"]
    assert result["implausible"] == 0.0
    assert not (tmp_path / "shipped" / "swing" / "report.html").exists()  # what ships is not written to
