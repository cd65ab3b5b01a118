# SPDX-License-Identifier: Apache-2.0
"""A frame with contacts is a function of state, torque and ground alone; floating bases keep their convention."""

import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.core.config import from_dict
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import multiply, rotate
from neurodyn.robots import Robot
from neurodyn.sim.newton.simulator import Capacity, ReferenceSimulator

SCENE = Scene(shapes=(Plane(), Box(half=(0.6, 0.6, 0.2))))
WORLDS = 6


def landed_ants(worlds: int = WORLDS) -> tuple[torch.Tensor, ...]:
    """States low over the ground, so that legs touch it, with torques and grounds."""
    generator = torch.Generator().manual_seed(2)
    robot = robots.load("ant")
    q = torch.zeros(worlds, robot.spec.nq)
    q[:, 2], q[:, 6] = 0.6, 1.0
    q[:, 7:] = torch.tensor([robot.nominal.get(joint.name, 0.0) for joint in robot.joints[1:]])
    q[:, :2] = torch.rand(worlds, 2, generator=generator) - 0.5
    qd = torch.randn(worlds, robot.spec.nv, generator=generator)
    torque = 200 * torch.randn(worlds, 40, robot.spec.nu, generator=generator)
    pose = torch.zeros(worlds, 7)
    pose[:, 2], pose[:, 6] = 0.2 * torch.rand(worlds, generator=generator), 1.0
    pose[:, 3] = 0.1 * torch.randn(worlds, generator=generator)
    pose[:, 3:] /= pose[:, 3:].norm(dim=-1, keepdim=True)
    return q, qd, torque, pose


@pytest.fixture(scope="module")
def ants() -> ReferenceSimulator:
    return ReferenceSimulator(robots.load("ant"), WORLDS, scene=SCENE)


def test_the_frame_forgets_what_was_simulated_before(ants: ReferenceSimulator):
    q, qd, torque, pose = landed_ants()
    ants.set_ground(pose)
    fresh = ants.rollout(q, qd, torque)
    assert fresh[0].isfinite().all()
    ants.set_ground(pose.roll(1, 0))
    other = ants.rollout(q.flip(0), -qd, -torque)
    assert not torch.equal(other[0], fresh[0])
    ants.set_ground(pose)
    for found, expected in zip(ants.rollout(q, qd, torque), fresh, strict=True):
        assert torch.equal(found, expected)


def test_worlds_and_their_grounds_are_independent(ants: ReferenceSimulator):
    q, qd, torque, pose = landed_ants()
    ants.set_ground(pose)
    q_all, qd_all = ants.rollout(q, qd, torque)
    order = torch.tensor([3, 1, 4, 0, 5, 2])
    ants.set_ground(pose[order])
    q_other, qd_other = ants.rollout(q[order], qd[order], torque[order])
    assert torch.equal(q_other, q_all[order])
    assert torch.equal(qd_other, qd_all[order])
    changed = pose.clone()
    changed[0, 2] -= 5.0
    ants.set_ground(changed)
    q_changed, _ = ants.rollout(q, qd, torque)
    assert torch.equal(q_changed[1:], q_all[1:])
    assert not torch.equal(q_changed[0], q_all[0])


def test_too_little_room_is_enlarged_and_nothing_is_lost(ants: ReferenceSimulator, monkeypatch):
    q, qd, torque, pose = landed_ants()
    ants.set_ground(pose)
    expected = ants.rollout(q, qd, torque)
    monkeypatch.setattr(Capacity, "of", classmethod(lambda cls, model, newton: Capacity(1, 4)))
    small = ReferenceSimulator(robots.load("ant"), WORLDS, scene=SCENE)
    small.set_ground(pose)
    for found, wanted in zip(small.rollout(q, qd, torque), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert dataclasses.astuple(small._capacity)[1] > 4  # type: ignore[arg-type]


def test_bodies_of_a_robot_do_not_collide(ants: ReferenceSimulator):
    """Neighbouring links of the ant overlap: in free fall nothing pushes them apart."""
    robot = robots.load("ant")
    q, qd, torque, pose = landed_ants()
    pose[:, 2] = -100.0
    ants.set_ground(pose)
    q_falling, qd_falling = ants.rollout(q, qd, torque)
    free = ReferenceSimulator(robot, WORLDS).rollout(q, qd, torque)
    torch.testing.assert_close(q_falling, free[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(qd_falling, free[1], rtol=0, atol=1e-2)


def test_featherstone_refuses_scenes(cartpole):
    with pytest.raises(InputError, match=r"declare simulator: \{solver: mujoco\}"):
        ReferenceSimulator(cartpole, 1, scene=SCENE)


TUMBLER = """<mujoco><worldbody><body name="trunk"><freejoint name="base"/>
<inertial pos="0.1 -0.2 0.3" mass="2" diaginertia="0.02 0.05 0.06"/><geom type="sphere" size="0.05"/>
<body name="arm" pos="0.2 0 0.1" euler="20 40 60"><joint name="shoulder" type="ball"/>
<inertial pos="0 0.1 0.2" mass="0.5" diaginertia="0.01 0.02 0.015"/></body></body></worldbody></mujoco>"""


@pytest.fixture(scope="module", params=["mujoco", "featherstone"])
def tumbler(request, tmp_path_factory) -> Robot:
    folder = tmp_path_factory.mktemp("tumbler")
    (folder / "tumbler.xml").write_text(TUMBLER)
    data = {
        "name": "tumbler",
        "asset": "tumbler.xml",
        "joints": [{"name": "base", "kind": "free"}, {"name": "shoulder", "kind": "ball"}],
        "actuated": {},
        "dt": 1e-4,
        "fixed_base": False,
        "gravity": [0, 0, 0],
        "teacher": {"solver": request.param, "substeps": 1},
    }
    return from_dict(data, Robot).locate(folder)


def random_tumblers(worlds: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    q = torch.randn(worlds, 11, generator=generator)
    for quaternion in (q[:, 3:7], q[:, 7:]):
        quaternion /= quaternion.norm(dim=-1, keepdim=True)
    return q, torch.randn(worlds, 9, generator=generator)


def test_velocities_are_those_of_the_centre_of_mass_and_of_the_parents_joint_frame(tumbler: Robot):
    """What a small step does to positions is what the docstring of `core.description.spec` says velocities are."""
    q, qd = random_tumblers(16)
    after, qd_after = ReferenceSimulator(tumbler, 16).step(q, qd, torch.zeros(16, 0))
    q, after, qd_after = q.double(), after.double(), qd_after.double()
    com = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64).expand(16, 3)
    centre, centre_after = (x[:, :3] + rotate(x[:, 3:7], com) for x in (q, after))
    torch.testing.assert_close((centre_after - centre) / tumbler.dt, qd_after[:, :3], rtol=0, atol=2e-2)
    for quaternion, velocity in ((slice(3, 7), slice(3, 6)), (slice(7, 11), slice(6, 9))):
        inverse = q[:, quaternion] * torch.tensor([-1, -1, -1, 1.0])
        spin = 2 * multiply(after[:, quaternion], inverse)[:, :3] / tumbler.dt
        torch.testing.assert_close(spin, qd_after[:, velocity], rtol=0, atol=2e-2)


def test_simulator_and_forward_kinematics_agree_on_velocities(tumbler: Robot):
    import newton
    import warp as wp

    q, qd = random_tumblers(8)
    simulator = ReferenceSimulator(msgspec.structs.replace(tumbler, dt=1e-6), 8)
    simulator.step(q, qd, torch.zeros(8, 0))
    state = simulator.model.state()
    newton.eval_fk(simulator.model, wp.from_torch(q.flatten()), wp.from_torch(qd.flatten()), state)
    assert state.body_qd is not None
    body_qd = torch.from_numpy(state.body_qd.numpy()).view(8, 2, 6)
    torch.testing.assert_close(body_qd[:, 0], qd[:, :6], rtol=0, atol=1e-5)
    base_prediction = torch.from_numpy(simulator.model.joint_X_p.numpy()).view(8, 2, 7)[:, 1]  # type: ignore[union-attr]
    relative = rotate(q[:, 3:7], rotate(base_prediction[:, 3:], qd[:, 6:]))
    torch.testing.assert_close(body_qd[:, 1, 3:] - body_qd[:, 0, 3:], relative, rtol=0, atol=1e-5)


def test_momentum_of_a_free_tumbler_is_kept(tumbler: Robot):
    """The velocity of the centre of mass of all bodies changes by gravity alone, here none."""
    q, qd = random_tumblers(8)
    robot = msgspec.structs.replace(tumbler, dt=0.01, simulator=msgspec.structs.replace(tumbler.simulator, substeps=40))
    q_all, _ = ReferenceSimulator(robot, 8).rollout(q, qd, torch.zeros(8, 20, 0))
    centres = []
    for frame in (0, 10, 20):
        x = q_all[:, frame].double()
        trunk = x[:, :3] + rotate(x[:, 3:7], torch.tensor([[0.1, -0.2, 0.3]], dtype=torch.float64).expand(8, 3))
        base_prediction = x[:, :3] + rotate(x[:, 3:7], torch.tensor([[0.2, 0, 0.1]], dtype=torch.float64).expand(8, 3))
        fixed = torch.tensor(euler_xyz(20, 40, 60), dtype=torch.float64).expand(8, 4)
        turn = multiply(x[:, 3:7], multiply(fixed, x[:, 7:]))
        arm = base_prediction + rotate(turn, torch.tensor([[0, 0.1, 0.2]], dtype=torch.float64).expand(8, 3))
        centres.append((2.0 * trunk + 0.5 * arm) / 2.5)
    torch.testing.assert_close(centres[2] - centres[1], centres[1] - centres[0], rtol=0, atol=2e-4)


def euler_xyz(*degrees: float) -> list[float]:
    """Return the quaternion of MuJoCo's default Euler angles: about x, then the new y, then the new z."""
    turn = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    for axis, angle in enumerate(np.radians(degrees) / 2):
        step = torch.zeros(4, dtype=torch.float64)
        step[axis], step[3] = float(np.sin(angle)), float(np.cos(angle))
        turn = multiply(turn, step)
    return turn.tolist()
