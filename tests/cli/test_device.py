# SPDX-License-Identifier: Apache-2.0
"""`--device` means the same in every verb that computes, and a device that is not there is refused in one line."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from neurodyn.cli import main as cli
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.dynamics import Control, State, Step
from neurodyn.dynamics.rollouts import ControlSequence, RolloutBatch, follow
from neurodyn.learn.devices import lacks_memory, require_device
from tests.policy.small_worlds import SPEC, Mass

NO_GPU = not torch.cuda.is_available()
COMPUTE = {
    "generate": ["pendulum", "--transitions", "10", "--out", "x.h5"],
    "check": ["pendulum"],
    "train": ["pendulum", "--data", "x.h5", "--out", "run"],
    "finetune": ["pretrained:pendulum", "--data", "x.h5", "--out", "run"],
    "identify": ["pendulum", "--data", "x.h5", "--out", "run"],
    "discover": ["pendulum", "--data", "x.h5", "--out", "run"],
    "evaluate": ["pretrained:pendulum"],
    "view": ["pretrained:pendulum"],
    "policy train": ["cartpole-swingup", "--dynamics", "analytic", "--out", "run"],
    "policy play": ["pretrained-policy:ant-run"],
    "policy evaluate": ["pretrained-policy:ant-run"],
}


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU, which would be used")
@pytest.mark.parametrize("verb", COMPUTE)
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_done(verb: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run([*verb.split(), *COMPUTE[verb], "--device", "cuda"]) == 2
    assert capsys.readouterr().err == (
        "neurodyn: --device 'cuda' is not available: torch finds no CUDA GPU; valid: cpu\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99", "cuda:-1", "CPU"])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"^device '.*' is not available.*; valid: cpu"):
        require_device(name)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ..."),
        RuntimeError("Failed to allocate 1024 bytes on device 'cuda:0'"),
    ],
)
def test_too_little_memory_is_one_line(error: Exception, monkeypatch, capsys) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "VERBS", Registry("verb", fill=cli.Verb("fill the memory", fail)))
    assert cli.run(["fill"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("neurodyn: --device: too little memory (")
    assert said.endswith("; valid: fewer worlds, smaller batches, another device\n")
    assert said.count("\n") == 1


def test_other_faults_are_not_taken_for_it(monkeypatch) -> None:
    assert not lacks_memory(RuntimeError("shapes do not fit"))

    def fail() -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(cli, "VERBS", Registry("verb", fill=cli.Verb("fail", fail)))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        cli.run(["fill"])


class _There(Mass):
    """A mass whose states lie on a device without data."""

    device = "meta"

    def step(self, carry, state: State, control: Control):
        given = [state.q, state.qd, control.target, control.kp, control.kd]
        assert {x.device.type for x in given if x is not None} == {"meta"}
        return replace(carry, frames=carry.frames + 1), Step(State(state.q + 1.0, state.qd))

    def rollout(self, context, controls, environment=None):
        assert {context.q.device.type, controls.device.type} == {"meta"}
        return super().rollout(context, controls, environment)


@pytest.mark.parametrize(
    "drive",
    [
        ControlSequence(torque=torch.zeros(2, 3, 1)),
        ControlSequence(target=torch.zeros(2, 3, 1), kp=torch.ones(2, 1), kd=torch.ones(2, 1)),
    ],
)
def test_starts_travel_to_the_model_and_its_roll_outs_come_back(drive: ControlSequence) -> None:
    start = State(torch.zeros(2, SPEC.nq), torch.zeros(2, SPEC.nv))
    with pytest.raises(NotImplementedError):  # of the base class, or because there are no data to be brought back
        follow(_There(), RolloutBatch(start, drive))
    for value in vars(RolloutBatch(start, drive).to("meta").drive).values():
        assert value is None or value.device.type == "meta"


@dataclass
class _Simulator:
    """As much of a simulator as a recorder asks for, on a device without data."""

    robot: object
    worlds: int
    device = torch.device("meta")

    def begin(self):
        pass

    def step_(self, q, qd, torque):
        assert {q.device.type, qd.device.type, torque.device.type} == {"meta"}
        return q, qd


@pytest.mark.parametrize("robot", ["pendulum", "franka"])
def test_a_batch_is_recorded_where_it_is_simulated(robot: str) -> None:
    from neurodyn.robots import load
    from neurodyn.sim.batches import Recorder

    declared = load(robot)
    recorder = Recorder(_Simulator(declared, 4), 3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta"):  # once, at the end
        recorder.record(np.random.default_rng(0), 0.5)


def test_a_search_on_the_cpu_rolls_out_elsewhere() -> None:
    from neurodyn.dynamics import HybridDynamics
    from neurodyn.multibody import EngineConfig
    from tests.multibody import machines

    mechanism = machines.pendulum()
    model = HybridDynamics(machines.spec(mechanism, ("shoulder",)), mechanism, EngineConfig(substeps=2))
    state = State(torch.zeros(2, 2), torch.zeros(2, 2))
    model.compute_device = "cpu"
    own = model.rollout(state, torch.zeros(2, 3, 1))
    assert own.q.device.type == "cpu"
    model.compute_device = "meta"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta"), torch.no_grad():
        model.rollout(state, torch.zeros(2, 3, 1))
