# SPDX-License-Identifier: Apache-2.0
"""TASK@nerd: observations, actions and rewards of the authors' environments, built here from states in their axes."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from neurodyn import tasks
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.quantities import Quantities, StateReader
from neurodyn.tasks.nerd import NOMINAL, TORQUES

FROM_THEIRS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])  # (x, y, z) -> (x, -z, y)
START = Rotation.from_euler("x", -90, degrees=True)  # upright in y-up axes
LEGS = {"RH": 0, "LH": 3, "RF": 6, "LF": 9}  # first index of a leg in their joint vector
CASES = {
    "upright": START,
    "pitched": Rotation.from_euler("z", 25, degrees=True) * START,
    "turned and rolled": Rotation.from_euler("yx", [130, 20], degrees=True) * START,
    "mirrored": Rotation.from_euler("y", 180, degrees=True) * START,
}


def ours(name: str, theirs: np.ndarray) -> np.ndarray:
    """Return a joint vector of theirs in the order of our robot."""
    if name.startswith("ant"):
        return theirs
    joints = tasks.load(name).declaration().actuated
    return np.array([theirs[LEGS[joint[:2]] + ("HAA", "HFE", "KFE").index(joint[3:])] for joint in joints])


def observed(name: str, turn: Rotation) -> tuple[np.ndarray, Quantities, dict[str, np.ndarray]]:
    """Return the observation that their environment would give of a state, and the quantities that ours has of it."""
    rng = np.random.default_rng(7)
    count = 8 if name.startswith("ant") else 12
    place, linear, angular = rng.normal(size=(3, 3))
    q, qd = rng.normal(size=(2, count))
    up, ahead = turn.apply([0, 0, 1])[1], turn.apply([1, 0, 0])[0]
    seen = [place[1], *turn.as_quat(), *linear, *angular, *q, *qd, up]
    if count == 12:
        seen.append(ahead)
    com = rng.normal(size=3) * 0.1
    mine = Rotation.from_matrix(FROM_THEIRS @ turn.as_matrix())
    spin = FROM_THEIRS @ angular
    centre = FROM_THEIRS @ linear + np.cross(spin, mine.apply(com))
    state = State(
        torch.tensor(np.array([[*(FROM_THEIRS @ place), *mine.as_quat(), *ours(name, q)]])),
        torch.tensor(np.array([[*centre, *spin, *ours(name, qd)]])),
    )
    robot = tasks.load(name).declaration()
    torque = torch.tensor(rng.normal(size=(1, count)))
    quantities = StateReader(robot.spec, owner="a test", com=torch.tensor(com)).read(state, torque=torque)
    return np.array(seen), quantities, {"linear": linear, "angular": angular, "torque": torque.numpy()[0]}


@pytest.mark.parametrize("turn", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", ["ant-run@nerd", "ant-spin@nerd", "anymal-forward@nerd", "anymal-side@nerd"])
def test_observations_are_theirs(name, turn):
    wanted, quantities, _ = observed(name, turn)
    task = tasks.load(name)
    seen = task.observe(quantities, task.begin(quantities, torch.Generator()))[0].double().numpy()
    assert seen.shape == wanted.shape == (len(task.observations),)
    if seen[1:5] @ wanted[1:5] < 0:  # the same rotation
        seen[1:5] *= -1
    np.testing.assert_allclose(seen, wanted, atol=1e-6)


def test_numbers_of_observations_are_those_of_the_published_policies():
    assert len(tasks.load("ant-run@nerd").observations) == 28
    assert len(tasks.load("anymal-side@nerd").observations) == 37


@pytest.mark.parametrize(("name", "target"), [("anymal-forward@nerd", (1.0, 0.0)), ("anymal-side@nerd", (0.0, 1.0))])
def test_rewards_of_anymal_are_theirs(name, target):
    """Their targets are velocities along their x and z; ours are read in our axes."""
    _, quantities, known = observed(name, CASES["turned and rolled"])
    task = tasks.load(name)
    x, _, z = known["linear"]
    off = (x - target[0]) ** 2 + (z - target[1]) ** 2
    wanted = np.exp(-off) + 0.5 * np.exp(-(known["angular"][1] ** 2)) - 2.5e-5 * (known["torque"] ** 2).sum()
    found = task.reward(quantities, task.begin(quantities, torch.Generator()), torch.zeros(1, 12))
    assert float(found["track"]) == pytest.approx(max(0.0, wanted), rel=1e-6)


def test_torques_of_anymal_are_theirs():
    """Their torque is a gain times the action, added to the controller of the nominal pose (85, 2)."""
    _, quantities, _ = observed("anymal-forward@nerd", START)
    task = tasks.load("anymal-forward@nerd")
    action = np.random.default_rng(1).uniform(-1, 1, 12)
    gains = np.array([75.0, 60.0, 12.0] * 4)
    nominal = np.array([0.03, 0.4, -0.8, -0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, -0.4, 0.8])
    q, qd = np.random.default_rng(2).normal(size=(2, 12))
    wanted = gains * action + 85.0 * (nominal - q) - 2.0 * qd
    control = task.control(torch.tensor(action[None]), quantities, task.begin(quantities, torch.Generator()))
    mine = {key: ours(task.name, value) for key, value in (("q", q), ("qd", qd), ("wanted", wanted))}
    found = control.kp * (control.target - torch.tensor(mine["q"])) - control.kd * torch.tensor(mine["qd"])
    np.testing.assert_allclose(found[0].numpy(), mine["wanted"], atol=1e-5)


def test_anymal_starts_near_their_nominal_pose():
    task = tasks.load("anymal-side@nerd")
    starts = task.start(50, torch.Generator().manual_seed(0)).q[:, 7:]
    nominal = torch.tensor([NOMINAL[joint] for joint in task.declaration().actuated])
    share = starts / nominal
    assert float(share.min()) >= 0.5
    assert float(share.max()) <= 1.5
    assert float(share.std()) > 0.2
    assert set(TORQUES) == {"HAA", "HFE", "KFE"}


def test_rewards_of_the_ant_are_those_of_the_task():
    """Along the same direction, since their x is ours."""
    _, quantities, known = observed("ant-run@nerd", CASES["pitched"])
    values = {}
    for name in ("ant-run", "ant-run@nerd"):
        task = tasks.load(name)
        values[name] = task.reward(quantities, task.begin(quantities, torch.Generator()), torch.zeros(1, 8))
    assert float(values["ant-run@nerd"]["progress"]) == pytest.approx(known["linear"][0], rel=1e-6)
    assert values["ant-run"] == values["ant-run@nerd"]
