# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of NeRD by their documented structure: the same forecasts, through files of ours; what is refused."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import State, Window
from neurodyn.interop import nerd as checkpoint
from neurodyn.interop.formats import import_model
from neurodyn.interop.nerd import NERD
from neurodyn.robots import Robot
from tests.interop import their_nerd as theirs

WINDOW = 6


@pytest.fixture(autouse=True)
def no_simulator(monkeypatch: pytest.MonkeyPatch):
    """The articulation is not built: its identity is no part of what is read."""
    monkeypatch.setattr(checkpoint, "has_simulator", lambda robot: False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = theirs.save(theirs.ModelMixedInput(), tmp_path / "model/nn/model.pt")
    (path.parent.parent / "cfg.yaml").write_text(
        f"env: {{neural_solver_cfg: {{name: TransformerNeuralSolver, num_states_history: {WINDOW}, "
        "prediction_type: relative, states_embedding_type: identical}}\n"
    )
    return path


def their_rollout(model: theirs.ModelMixedInput, q: Tensor, qd: Tensor, force: Tensor) -> Tensor:
    """Roll out as their solver does: a window of raw frames, wrapped angles, changes of state."""
    state, window, path = torch.cat([q, qd], -1), [], []
    for torque in force.unbind(1):
        seen = state.clone()
        seen[:, 1] = torch.remainder(seen[:, 1] + torch.pi, 2 * torch.pi) - torch.pi
        window = [*window, (seen, torch.cat([torque, torch.zeros_like(torque)], -1))][-WINDOW:]
        inputs = {name: torch.stack([frame[k] for frame in window], 1) for k, name in enumerate(theirs.INPUTS)}
        state = state + model.evaluate(inputs)
        path.append(state)
    return torch.stack(path, 1)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_forecasts_are_those_of_the_original(bias: bool, file: Path, cartpole: Robot, tmp_path: Path):
    original = theirs.ModelMixedInput(bias=bias)
    original.output_rms.mean *= 0.1
    theirs.save(original, file)
    import_model(file, cartpole.name, tmp_path / "run", layout="nerd")
    assert not {"models", "models.models", "utils.running_mean_std"} & set(sys.modules)
    model = load(tmp_path / "run")
    assert (model.kind, model.spec.context, model.network) == ("nerd", WINDOW - 1, "transformer")
    q, qd, force = torch.randn(3, 2), torch.randn(3, 2), torch.randn(3, 10, 1)
    expected = their_rollout(original, q, qd, force)
    path = model.rollout(State(q, qd), force)
    assert torch.allclose(torch.cat([path.q, path.qd], -1)[:, 1:], expected, atol=1e-5)
    # History that is given, and worlds that begin anew beside others, are the same frames.
    window = Window(path.q[:, :5], path.qd[:, :5], force[:, :4])
    later = model.rollout(window, force[:, 4:])
    assert torch.allclose(later.q, path.q[:, 4:], atol=1e-5)
    carry = model.reset(model.begin(window), State(q, qd), torch.tensor([True, False, True]))
    fresh = model.begin(State(q, qd))
    assert carry.filled.tolist() == [0, 4, 0]
    assert torch.equal(carry.frames[0], fresh.frames[0])


def test_gradients_are_those_of_finite_differences(file: Path, cartpole: Robot):
    model = checkpoint.read_nerd(file, cartpole, None).double()
    start = State(torch.randn(2, 2).double(), torch.randn(2, 2).double())

    def end(force: Tensor) -> Tensor:
        return model.rollout(start, force).q[:, -1]

    assert torch.autograd.gradcheck(end, torch.randn(2, 3, 1).double().requires_grad_(True))


def test_what_does_not_fit_is_one_line(file: Path, cartpole: Robot, tmp_path: Path):
    with pytest.raises(InputError, match="holds its own"):
        checkpoint.read_nerd(file, cartpole, tmp_path / "some.yaml")
    seen = {**theirs.INPUTS, "contact_depths": 4}
    theirs.save(theirs.ModelMixedInput(seen), file)
    with pytest.raises(InputError, match="sees contact_depths, contact points and base of the authors' simulator"):
        checkpoint.read_nerd(file, cartpole, None)
    theirs.save(theirs.ModelMixedInput({**theirs.INPUTS, "joint_acts": 5}), file)
    with pytest.raises(InputError, match="has 6 inputs and 4 outputs, the network has 9 and 4"):
        checkpoint.read_nerd(file, cartpole, None)
    theirs.save(torch.nn.Linear(2, 2), file)
    with pytest.raises(InputError, match="holds no ModelMixedInput"):
        checkpoint.read_nerd(file, cartpole, None)
    broken = theirs.ModelMixedInput()
    del broken.transformer_model.transformer["h"]
    theirs.save(broken, file)
    with pytest.raises(InputError, match="not laid out as a transformer"):
        checkpoint.read_nerd(file, cartpole, None)
    unfinished = theirs.ModelMixedInput()
    unfinished.output_rms = None
    theirs.save(unfinished, file)
    with pytest.raises(InputError, match="holds no statistics"):
        checkpoint.read_nerd(file, cartpole, None)
    (file.parent.parent / "cfg.yaml").write_text("env: {neural_solver_cfg: {prediction_type: absolute}}\n")
    with pytest.raises(InputError, match=r"prediction_type is 'absolute'; valid: relative"):
        checkpoint.read_nerd(theirs.save(theirs.ModelMixedInput(), file), cartpole, None)


def test_an_imported_network_is_saved_as_every_model(file: Path, cartpole: Robot, tmp_path: Path):
    model = checkpoint.read_nerd(file, cartpole, None)
    NERD.save(tmp_path / "run", model)
    config, spec = NERD.read(tmp_path / "run")
    assert (config.window, config.parts, spec.state.robot) == (WINDOW, ("states", "torques"), "cartpole")
    with pytest.raises(InputError, match="feels no ground"):
        model.require_ground()
