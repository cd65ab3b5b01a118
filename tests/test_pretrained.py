# SPDX-License-Identifier: Apache-2.0
"""The models that ship with the package do what they are shipped for."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open

from neurodyn.core.artifacts import (
    PRETRAINED,
    PRETRAINED_POLICY,
    pretrained_names,
    pretrained_policy_names,
    read_json,
    read_tensors,
    resolve_policy,
    resolve_run,
)
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.core.provenance import CHECKSUM

SIZE_LIMIT = 4_000_000


def test_a_cartpole_ships():
    assert "cartpole" in pretrained_names()


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_small_and_says_how_it_was_made(name):
    from neurodyn.dynamics.artifact import kind_of
    from neurodyn.identify.settings import IdentificationRecord
    from neurodyn.learn.neural.train import read_run_config
    from neurodyn.learn.world_model.train import WorldRunConfig

    run = resolve_run(PRETRAINED + name)
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < SIZE_LIMIT
    if kind_of(run) == "world-model":
        assert read_config(run / "config.yaml", WorldRunConfig).settings.phases
    elif kind_of(run) == "hybrid":
        assert read_config(run / "config.yaml", IdentificationRecord).settings.parameters
    else:
        assert read_run_config(run).settings.phases


def test_what_ships_carries_checksums():
    root = resolve_run(f"{PRETRAINED}cartpole").parent
    files = [*root.glob("*/model/*"), *root.with_name("pretrained_policies").glob("*/*")]
    sealed = [path for path in files if path.suffix == ".safetensors" or path.name in {"config.json", "spec.json"}]
    assert len(sealed) == 3 * len(pretrained_names()) + 2 * len(pretrained_policy_names())
    for path in sealed:
        if path.suffix == ".json":
            assert CHECKSUM in json.loads(path.read_text())
            read_json(path)
            continue
        with safe_open(path, "pt") as file:
            assert CHECKSUM in file.metadata()
        read_tensors(path)


@pytest.mark.parametrize("name", ["cartpole", "anymal-walks", "cube"])
def test_a_model_that_was_changed_is_not_opened(name, tmp_path):
    from neurodyn import load

    _refused_when_changed(resolve_run(PRETRAINED + name), "model", tmp_path, load)


@pytest.mark.parametrize("name", pretrained_policy_names())
def test_a_policy_that_was_changed_is_not_opened(name, tmp_path):
    pytest.importorskip("rsl_rl", reason="the extra policy is not installed")
    from neurodyn.policy import load_policy

    _refused_when_changed(resolve_policy(PRETRAINED_POLICY + name), ".", tmp_path, load_policy)


def _refused_when_changed(source: Path, inner: str, folder: Path, opened: Callable[[str], object]) -> None:
    """Check that a copy opens, and that none opens in which a file was changed."""
    shutil.copytree(source, folder / "copy")
    opened(str(folder / "copy"))
    for path in (folder / "copy" / inner).iterdir():
        if path.suffix == ".safetensors" or path.name in {"config.json", "spec.json"}:
            whole = path.read_bytes()
            if path.suffix == ".json":
                path.write_text(json.dumps(json.loads(whole) | {"dt": 0.5}))
            else:
                path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
            with pytest.raises(InputError, match="is not what was written: its checksum differs"):
                opened(str(folder / "copy"))
            path.write_bytes(whole)


def test_weights_stored_in_half_precision_compute_in_single():
    from neurodyn import load
    from neurodyn.dynamics import NeuralDynamics

    stored = read_tensors(resolve_run(f"{PRETRAINED}ant-learned-large") / "model/model.safetensors")
    assert any(tensor.dtype.itemsize == 2 for tensor in stored.values())
    model = load(f"{PRETRAINED}ant-learned-large")
    assert isinstance(model, NeuralDynamics)
    assert {tensor.dtype.itemsize for tensor in model.parameters()} == {4}


def test_the_cartpole_beats_the_paper_at_its_shortest_horizon_on_states_never_seen():
    pytest.importorskip("newton", reason="the extra sim is not installed")
    from neurodyn.evaluate import evaluate

    result = evaluate("pretrained:cartpole", horizon=100, rollouts=256, seed=91).plain()
    # NeRD, table of passive motion, 100 steps: .0002 m and .0004 rad.
    assert result["base_position_m"] < 2e-4
    assert result["joint_rad"] < 4e-4
    assert result["finite_fraction"] == 1.0


def test_more_than_memory_holds_is_refused_at_once():
    pytest.importorskip("newton", reason="the extra sim is not installed")
    from neurodyn.evaluate import evaluate

    with pytest.raises(InputError, match=r"--rollouts 2 of --horizon 1000000000 need about 400 GB of memory; valid"):
        evaluate("pretrained:cartpole", horizon=10**9, rollouts=2)


@pytest.mark.parametrize("name", pretrained_names())
def test_the_caveat_that_is_shown_is_that_of_the_weights(name):
    from neurodyn import load
    from neurodyn.robots.listing import list_policies, list_robots

    model = PRETRAINED + name
    shown = next(robot.caveats.get(model, "") for robot in list_robots() if model in robot.pretrained)
    caveat = load(model).caveat
    assert shown == caveat
    assert (caveat == "compiled contacts, network silent") is (name in {"ant", "anymal-c"})
    assert all(policy.caveat == caveat for policy in list_policies() if policy.dynamics == model)


@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained_names())
def test_the_errors_that_are_shown_are_those_of_the_model(name):
    """Few roll-outs from other states than the shown figures come from: the same within a factor."""
    pytest.importorskip("newton", reason="the extra sim is not installed")
    from neurodyn import load, robots
    from neurodyn.dynamics.artifact import kind_of
    from neurodyn.dynamics.neural.model import NeuralDynamics
    from neurodyn.evaluate import beside_simulator, evaluate
    from neurodyn.robots.listing import list_robots

    shown = next(r.measured[PRETRAINED + name] for r in list_robots() if PRETRAINED + name in r.pretrained)
    if "recorded" in shown.what:
        data = Path(__file__).resolve().parents[1] / "../shared/data/cube_toss/cube_toss.npz"
        if not data.exists():
            pytest.skip("the recorded tosses are not here")
        result = evaluate(PRETRAINED + name, data=str(data)).plain()
        tolerance = 1.02
    elif kind_of(PRETRAINED + name) == "world-model":
        result = evaluate(PRETRAINED + name, rollouts=shown.rollouts).plain()
        tolerance = 1.02
    else:
        model = load(PRETRAINED + name)
        robot = robots.load(model.spec.robot)
        whole = isinstance(model, NeuralDynamics) and model.encoding.base_is_whole
        # Beside its own simulator few roll-outs rule the mean, of 96 as of 32.
        count, tolerance = (32, 30.0) if whole else (24, 4.0)
        found = beside_simulator(
            model, robot, horizon=shown.horizon, rollouts=count, seed=91, driven=False, references=0
        )
        result = found.plain()
    for key, value in shown.errors.items():
        assert value / tolerance < result[key] < value * tolerance, key


@pytest.mark.parametrize(
    ("name", "least", "episodes"),
    [
        ("cartpole", 1150.0, 32),
        ("ant-run", 2600.0, 8),
        ("ant-spin", 2600.0, 8),
        ("ant-run-analytic", 2700.0, 8),
        ("anymal-forward", 1330.0, 4),
        ("anymal-forward-analytic", 1330.0, 4),
    ],
)
def test_a_shipped_policy_returns_what_the_page_says(name, least, episodes):
    """In the simulator, beside the paper's 2541 and 1323 (NeRD, arXiv 2508.15755)."""
    pytest.importorskip("newton", reason="the extra sim is not installed")
    pytest.importorskip("rsl_rl", reason="the extra policy is not installed")
    from neurodyn.policy import evaluate

    found = evaluate(f"pretrained-policy:{name}", ("analytic",), episodes=episodes, seed=77).results[0]
    assert found.mean > least
    assert found.implausible == 0.0
