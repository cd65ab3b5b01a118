# SPDX-License-Identifier: Apache-2.0
"""Models in place of Isaac Lab's physics, beside a stand-in of the classes that are touched, by their documentation."""

from types import SimpleNamespace

import pytest
import torch

from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics import State, declared_hybrid
from neurodyn.dynamics.batch import Control, Environment, WorldParameters
from neurodyn.interop.isaaclab import use_dynamics
from neurodyn.robots import load
from neurodyn.sim import declare

WORLDS, DT = 3, 0.005
SCENE = """
<mujoco><compiler angle="radian"/><option timestep="0.005" integrator="implicitfast"/>
  <worldbody><geom name="floor" type="plane" size="0 0 .01"/>
    <body name="trunk" pos="0 0 .3"><freejoint name="floating"/>
      <inertial pos=".03 -.02 .01" mass="2" diaginertia=".02 .03 .04"/>
      <geom name="foot" type="sphere" size=".1"/>
      <body name="arm" pos="0 0 .1"><joint name="shoulder" axis="0 1 0" armature=".01" range="-2 2"/>
        <geom name="rod" type="capsule" fromto="0 0 0 0 0 .2" size=".02" mass=".5" contype="0" conaffinity="0"/>
        <body name="hand" pos="0 0 .2"><joint name="wrist" axis="1 0 0" range="-2 2"/>
          <geom name="palm" type="sphere" size=".03" mass=".2" contype="0" conaffinity="0"/>
  </body></body></body></worldbody>
  <actuator><motor name="shoulder" joint="shoulder" ctrlrange="-4 4"/>
    <motor name="wrist" joint="wrist" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("isaaclab")
    (place / "scene.xml").write_text(SCENE)
    declare(place / "scene.xml", place / "robot", dt=DT)
    return declared_hybrid(place / "robot", substeps=1)


class View:
    """`ArticulationView` of PhysX: numbers, which `get_` reads and `set_` writes for chosen worlds."""

    def __init__(self) -> None:
        self.values = {
            "dof_positions": torch.zeros(WORLDS, 2), "dof_velocities": torch.zeros(WORLDS, 2),
            "root_transforms": torch.tensor([0.0, 0.0, 0.3, 0.0, 0.0, 0.0, 1.0]).repeat(WORLDS, 1),
            "root_velocities": torch.zeros(WORLDS, 6), "masses": torch.tensor([2.0, 0.5, 0.2]).repeat(WORLDS, 1),
            "coms": torch.zeros(WORLDS, 3, 7), "material_properties": torch.ones(WORLDS, 1, 3),
        }  # fmt: skip

    def __getattr__(self, name):
        kind, _, what = name.partition("_")
        values = self.__dict__["values"]
        if kind not in ("get", "set") or what not in values:
            raise AttributeError(name)
        if kind == "get":
            return lambda: values[what]

        def write(data, indices):
            assert data.shape == values[what].shape
            values[what][indices] = data[indices].clone()

        return write


class Simulation:
    def __init__(self, view) -> None:
        self.view, self.steps, self.forwards = view, 0, 0

    def step(self, render=True) -> None:
        self.steps += 1
        self.view.values["dof_positions"] += 100.0  # PhysX's own idea

    def forward(self) -> None:
        self.forwards += 1


class InteractiveScene:
    def __init__(self, robot) -> None:
        self.articulations, self.resets = {"robot": robot}, []
        self.env_origins = torch.tensor([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0], [0.0, 5.0, 0.0]])

    def reset(self, env_ids=None) -> None:
        self.resets.append(env_ids)


class Task:
    """An environment of Isaac Lab, stepped as `ManagerBasedRLEnv.step` steps its physics; PhysX orders joints by depth,
    with names of its own order."""

    def __init__(self, decimation=2, *, joints=("wrist", "shoulder"), fixed=False) -> None:
        self.view = view = View()
        usual = torch.tensor([[2.0, 0.5, 0.2]]).repeat(WORLDS, 1)
        armature = torch.tensor([[0.0, 0.01]]).repeat(WORLDS, 1)
        data = SimpleNamespace(
            applied_torque=torch.zeros(WORLDS, 2), joint_pos_target=torch.zeros(WORLDS, 2), default_mass=usual,
            joint_armature=armature.clone(), default_joint_armature=armature,
        )  # fmt: skip
        self.robot = SimpleNamespace(
            root_physx_view=view, data=data, joint_names=list(joints), body_names=["trunk", "arm", "hand"],
            is_fixed_base=fixed, num_instances=WORLDS,
        )  # fmt: skip
        self.sim, self.scene = Simulation(view), InteractiveScene(self.robot)
        view.values["root_transforms"][:, :3] += self.scene.env_origins
        self.device, self.physics_dt, self.cfg = "cpu", DT, SimpleNamespace(decimation=decimation)

    @property
    def unwrapped(self):
        return self

    def physics(self, torques) -> None:
        for torque in torques:
            self.robot.data.applied_torque[:] = torque
            self.sim.step(render=False)

    def state(self) -> State:
        """Return the state in the order of the model, about the origins."""
        values = self.view.values
        pose = values["root_transforms"].clone()
        pose[:, :3] -= self.scene.env_origins
        q, qd = (values[f"dof_{what}"][:, [1, 0]] for what in ("positions", "velocities"))
        return State(torch.cat([pose, q], 1), torch.cat([values["root_velocities"], qd], 1))


def thrown(env) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, size in (("root_velocities", 0.8), ("dof_velocities", 1.0), ("dof_positions", 0.3)):
        values = env.view.values[name]
        values += size * torch.randn(values.shape, generator=generator)


def test_a_task_moves_by_the_models_roll_out(model):
    env, generator = Task(), torch.Generator().manual_seed(1)
    thrown(env)
    start = env.state()
    physics = use_dynamics(env, model)
    torques = torch.tensor([0.01, 0.3]) * torch.randn(40, WORLDS, 2, generator=generator)  # in Isaac Lab's order
    env.physics(torques)
    path = model.rollout(start, torques[:, :, [1, 0]].transpose(0, 1))
    found = env.state()
    torch.testing.assert_close(found.q, path.q[:, -1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.qd, path.qd[:, -1], atol=1e-4, rtol=1e-4)
    assert (path.q[:, -1] - path.q[:, 0]).abs().max() > 0.1
    assert (env.sim.steps, env.sim.forwards) == (40, 40)
    assert physics.faults == []
    assert physics.left_out == ()
    physics.restore()
    env.sim.step(render=False)
    assert (env.state().q[:, 7:] > 50).all()


def test_randomised_quantities_of_events_are_adopted_or_named(model):
    env = Task()
    thrown(env)
    start = env.state()
    masses = torch.tensor([1.5, 2.0, 3.0])
    env.view.values["masses"][:, 0] = masses
    env.robot.data.joint_armature[:, 1] = torch.tensor([0.01, 0.02, 0.05])
    env.view.values["material_properties"][1] = 0.5
    with pytest.warns(UserWarning, match=r"Isaac Lab: the model of 'scene' ignores the randomisation of materials"):
        physics = use_dynamics(env, model)
    assert physics.quantities == ("floating.mass", "shoulder.armature")
    assert physics.left_out == ("materials",)
    free = model.freeing(physics.quantities)

    def after(numbers):
        where = Environment(
            ground=free.resolve_environment(None).ground, parameters=WorldParameters(physics.quantities, numbers)
        )
        torque = Control(torque=torch.tensor([[1.0, 0.5]]).repeat(WORLDS, 1))
        return free.step(free.begin(start, where), start, torque)[1].state

    def moved():
        env.physics([torch.tensor([0.5, 1.0])])
        return env.state()

    numbers = torch.stack([masses, env.robot.data.joint_armature[:, 1]], 1)
    torch.testing.assert_close(moved().qd, after(numbers).qd, atol=1e-5, rtol=1e-5)
    env.scene.reset(torch.arange(WORLDS))
    env.view.values["masses"][:, 0] = 2.5
    for name, part in (
        ("root_velocities", start.qd[:, :6]), ("dof_velocities", start.qd[:, [7, 6]]),
        ("dof_positions", start.q[:, [8, 7]]),
    ):  # fmt: skip
        env.view.values[name][:] = part
    env.view.values["root_transforms"][:, :3] = start.q[:, :3] + env.scene.env_origins
    env.view.values["root_transforms"][:, 3:] = start.q[:, 3:7]
    numbers[:, 0] = 2.5
    torch.testing.assert_close(moved().qd, after(numbers).qd, atol=1e-5, rtol=1e-5)


def test_a_world_that_breaks_down_rests_until_it_is_reset(model):
    env = Task()
    physics = use_dynamics(env, model, sensors=False)
    env.view.values["root_velocities"][1, 0] = float("inf")
    env.physics(torch.zeros(1, WORLDS, 2))
    assert [(fault.world, fault.worlds) for fault in physics.faults] == [(1, 1)]
    kept = env.state().q[1].clone()
    env.physics(torch.zeros(1, WORLDS, 2))
    assert torch.equal(env.state().q[1], kept)
    assert (env.state().qd[1] == 0).all()
    env.scene.reset(torch.tensor([1]))
    env.physics(torch.zeros(1, WORLDS, 2))
    assert not torch.equal(env.state().q[1], kept)
    assert env.sim.steps == 0
    assert len(env.scene.resets) == 1


def test_longer_frames_move_at_once(model):
    env = Task(decimation=4)
    env.physics_dt = DT / 2
    use_dynamics(env, model)
    thrown(env)
    env.physics(torch.zeros(1, WORLDS, 2))
    first = env.state().q.clone()
    env.physics(torch.zeros(1, WORLDS, 2))
    assert torch.equal(env.state().q, first)
    env.physics(torch.zeros(1, WORLDS, 2))
    assert not torch.equal(env.state().q, first)


def test_what_does_not_fit_is_refused_by_name(model):
    env = Task()
    env.physics_dt = 0.003
    with pytest.raises(MismatchError, match=r"Isaac Lab: the model of 'scene' has frames of 0.005 s; valid: 0.003 s"):
        use_dynamics(env, model)
    with pytest.raises(InputError, match="Isaac Lab: the robot's base is fixed; valid: one as in the model of 'scene'"):
        use_dynamics(Task(fixed=True), model)
    with pytest.raises(InputError, match="Isaac Lab: the robot has no joint 'shoulder'"):
        use_dynamics(Task(joints=("wrist", "elbow")), model)
    with pytest.raises(InputError, match="joint 'finger' moves, but the model of 'scene' does not have it"):
        use_dynamics(Task(joints=("wrist", "shoulder", "finger")), model)
    env.physics_dt = 1 / 60
    with pytest.raises(InputError, match="the robot's base is free; valid: one as in the model of 'cartpole'"):
        use_dynamics(env, declared_hybrid(load("cartpole")))
