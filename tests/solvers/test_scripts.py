# SPDX-License-Identifier: Apache-2.0
"""Newton's own example scripts, headless and unchanged, with our solvers in place of theirs."""

import contextlib
import importlib
import sys
from pathlib import Path

import newton
import newton.examples
import newton.viewer
import numpy as np
import pytest
import torch
import warp as wp
from benchmarks._newton_scripts import declare_model, main, solver_maker, solvers_replaced

from neurodyn import robots
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics import State, declared_hybrid
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import ModelConfig, ModelSpec, build_model
from neurodyn.sim.simulators import articulation
from neurodyn.solvers import SolverHybrid, SolverNeural
from tests.solvers.conftest import NETS

WORLDS, FRAMES = 2, 6
DOUBLE_POLE = "robot.example_robot_cartpole"
STEP = 1 / 600


def run(script, make=None, *, frames=FRAMES, capture=True, edit=None):
    """Run an example; return it, what replaced its solver, and positions, shape [frames, worlds, n]."""
    module = importlib.import_module(f"newton.examples.{script}")
    args = module.Example.create_parser().parse_args(["--viewer", "null", "--world-count", str(WORLDS)])
    viewer, seen = newton.viewer.ViewerNull(num_frames=frames), []
    with contextlib.nullcontext() if make is None else solvers_replaced(make, capture=capture) as placed:
        example = module.Example(viewer, args)
        if edit is not None:
            edit(example)
        for _ in range(frames):
            example.step()
            example.render()
            seen.append(example.state_0.joint_q.numpy().reshape(WORLDS, -1).copy())
    return example, placed, np.array(seen)


class BuiltError(Exception):
    """The script has a model."""


def declared(script, folder):
    """Declare the robot of a script, as it builds it."""

    def write(model, _):
        declare_model(model, folder)
        raise BuiltError

    with pytest.raises(BuiltError):
        run(script, write)
    return folder


@pytest.fixture(scope="module")
def double_pole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return declared(DOUBLE_POLE, tmp_path_factory.mktemp("scripts") / "double-pole")


@pytest.fixture(scope="module")
def theirs():
    return run(DOUBLE_POLE, frames=60)[2]


@pytest.mark.slow
def test_a_hybrid_in_their_script_moves_as_their_solver_and_passes_their_test(double_pole, theirs):
    example, placed, found = run(DOUBLE_POLE, solver_maker(double_pole, dt=STEP), frames=60)
    np.testing.assert_allclose(found, theirs, atol=2e-6)
    assert np.ptp(found[:, 0, 1]) > 1.0
    assert isinstance(placed.solvers[0], SolverHybrid)
    assert placed.faults == []
    example.test_final()
    assert newton.solvers.SolverMuJoCo.__module__.startswith("newton.")


@pytest.mark.slow
@pytest.mark.parametrize("capture", [True, False])
def test_frames_of_several_steps_are_taken_at_once(double_pole, theirs, capture):
    model = declared_hybrid(double_pole, substeps=10)
    assert model.spec.dt == pytest.approx(10 * STEP)
    _, _, found = run(DOUBLE_POLE, lambda made, _: SolverHybrid(made, model), capture=capture)
    np.testing.assert_allclose(found, theirs[:FRAMES], atol=2e-6)


@pytest.mark.slow
def test_frames_that_do_not_fit_are_refused(double_pole):
    with pytest.raises(MismatchError, match=r"the script steps by 0.00166667 s; valid: the 0.004 s of the model's"):
        run(DOUBLE_POLE, solver_maker(double_pole, dt=0.004))
    with pytest.raises(InputError, match=r"captures a part of the model's frame; valid: capture=False"):
        run(DOUBLE_POLE, solver_maker(double_pole, dt=4 * STEP))
    run(DOUBLE_POLE, solver_maker(double_pole, dt=4 * STEP), capture=False, frames=1)


@pytest.mark.slow
@pytest.mark.parametrize("capture", [True, False])
def test_a_world_that_breaks_down_is_reported_and_contained(double_pole, theirs, capture):
    world = int(capture)

    def break_down(example):
        wp.to_torch(example.state_0.joint_qd)[3 * world] = 1e9

    make = solver_maker(double_pole, dt=STEP, on_fault="hold")
    with pytest.warns(UserWarning, match=rf"world {world}, frame 1: qd\.railCartJoint"):
        _, placed, found = run(DOUBLE_POLE, make, capture=capture, edit=break_down)
    assert [(fault.world, fault.worlds) for fault in placed.faults] == [(world, 1)]
    np.testing.assert_allclose(found[:, 1 - world], theirs[:FRAMES, 1 - world], atol=2e-6)
    assert (found[:, world] == found[0, world]).all()


def small_network(folder, kind):
    robot = robots.load(folder)
    q, qd = torch.zeros(64, 3), torch.randn(64, 3)
    encoding = fit_encoding(robot.spec, qd, 0.01 * torch.randn_like(q), 0.01 * torch.randn_like(qd))
    torch.manual_seed(0)
    config = ModelConfig(kind="neural", net=NETS[kind], encoding=encoding.config, robot=str(folder))
    model = build_model(config, ModelSpec(state=robot.spec, fingerprint=articulation(robot).fingerprint))
    model.predictor.fit(torch.randn(64, model.encoding.inputs), 0.01 * torch.randn(64, model.encoding.outputs))
    for weight in model.predictor.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return model.requires_grad_(False)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "capture"), [("gru", True), ("transformer", False)])
def test_a_network_in_their_script_is_its_roll_out(double_pole, kind, capture):
    model = small_network(double_pole, kind)
    example, _, found = run(DOUBLE_POLE, lambda made, _: SolverNeural(made, model, on_fault="off"), capture=capture)
    start = torch.from_numpy(example.model.joint_q.numpy().reshape(WORLDS, 3))
    path = model.rollout(State(start, torch.zeros_like(start)), torch.zeros(WORLDS, FRAMES, 3))
    np.testing.assert_allclose(found, path.q[:, 1:].transpose(0, 1).numpy(), atol=1e-5)
    assert np.ptp(found) > 1e-3


@pytest.mark.slow
def test_the_command_runs_their_script(double_pole, monkeypatch, capsys):
    tail = ["robot_cartpole", "--viewer", "null", "--world-count", "1", "--num-frames", "40", "--test"]
    monkeypatch.setattr(sys, "argv", ["scripts", "--dynamics", str(double_pole), "--dt", "1/600", *tail])
    main()
    monkeypatch.setattr(sys, "argv", ["scripts", "--dynamics", str(double_pole), "no_such_script"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no script 'no_such_script'; valid: a path, or an example of Newton" in capsys.readouterr().err
