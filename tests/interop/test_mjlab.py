# SPDX-License-Identifier: Apache-2.0
"""Models in place of mjlab's physics: beside a stand-in of its simulation, and in its own velocity task."""

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch
import warp as wp

from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics import declared_hybrid
from neurodyn.dynamics.batch import Control, Environment, WorldParameters
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import ModelConfig, ModelSpec, build_model
from neurodyn.interop.mjlab import SceneColumns, declare_scene, use_dynamics
from neurodyn.nets.networks import NetConfig
from neurodyn.robots import load
from neurodyn.sim import articulation, declare

WORLDS = 3
SCENE = """
<mujoco><compiler angle="radian"/><option timestep="0.005" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <worldbody><geom name="terrain" type="plane" size="0 0 .01"/>
    <body name="robot/trunk" pos="0 0 .3"><freejoint name="robot/floating"/>
      <inertial pos=".03 -.02 .01" mass="2" diaginertia=".02 .03 .04"/>
      <geom name="robot/foot" type="sphere" size=".1" priority="1" friction=".7 .005 .0001"/>
      <body name="robot/arm" pos="0 0 .1"><joint name="robot/shoulder" axis="0 1 0" armature=".01" range="-2 2"/>
        <geom name="robot/rod" type="capsule" fromto="0 0 0 0 0 .2" size=".02" mass=".5" contype="0" conaffinity="0"/>
  </body></body></worldbody>
  <actuator><position name="robot/shoulder" joint="robot/shoulder" kp="5" kv=".3" forcerange="-4 4"/></actuator>
</mujoco>
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("mjlab")
    (place / "scene.xml").write_text(SCENE)
    declare(place / "scene.xml", place / "robot", dt=0.005)
    return declared_hybrid(place / "robot", substeps=1)


class Simulation:
    """What `ModelPhysics` needs of mjlab's `Simulation`: the arrays, and nothing that moves them."""

    def __init__(self) -> None:
        self.mj_model = mujoco.MjModel.from_xml_string(SCENE)
        self.num_envs, self.device, self.expanded_fields = WORLDS, "cpu", {"body_ipos", "geom_friction", "geom_rgba"}
        fields = ("body_ipos", "body_mass", "geom_friction", "geom_rgba")
        self.wp_model = SimpleNamespace(**{
            name: wp.array(np.repeat(getattr(self.mj_model, name)[None], WORLDS, 0).astype(np.float32))
            for name in fields
        })  # fmt: skip
        sizes = {"qpos": self.mj_model.nq, "qvel": self.mj_model.nv, "ctrl": 1, "qfrc_actuator": self.mj_model.nv}
        self.wp_data = SimpleNamespace(
            time=wp.zeros(WORLDS, dtype=float),
            **{name: wp.zeros((WORLDS, size), dtype=float) for name, size in sizes.items()},
        )
        self.data = {name: wp.to_torch(getattr(self.wp_data, name)) for name in (*sizes, "time")}
        self.data["qpos"][:] = torch.from_numpy(self.mj_model.qpos0)
        self.forwards = 0

    def forward(self) -> None:
        self.forwards += 1

    def step(self) -> None:
        raise AssertionError("MuJoCo's own step")

    def reset(self, env_ids=None) -> None:
        self.data["qvel"][slice(None) if env_ids is None else env_ids] = 0.0


def environment(**changes) -> SimpleNamespace:
    simulation = Simulation()
    for name, (place, values) in changes.items():
        wp.to_torch(getattr(simulation.wp_model, name))[(slice(None), *place)] = torch.tensor(values)
    return SimpleNamespace(sim=simulation, cfg=SimpleNamespace(decimation=4))


def test_a_scene_of_mjlab_moves_as_in_mujoco(model):
    """Beside `mj_step`, from a turned and turning base, through contact."""
    env = environment()
    physics = use_dynamics(env, model)
    scene, data = env.sim.mj_model, mujoco.MjData(env.sim.mj_model)
    data.qpos[:] = [0.1, 0.2, 0.16, 0.8, 0.2, -0.1, 0.55, 0.3]
    data.qpos[3:7] /= np.linalg.norm(data.qpos[3:7])
    data.qvel[:] = [0.3, -0.2, 0.1, 1.0, -2.0, 0.5, 0.7]
    env.sim.data["qpos"][:] = torch.from_numpy(data.qpos)
    env.sim.data["qvel"][:] = torch.from_numpy(data.qvel)
    touched = 0
    for step in range(60):
        data.ctrl[:] = np.sin(0.1 * step)
        env.sim.data["ctrl"][:] = float(data.ctrl[0])
        mujoco.mj_step(scene, data)
        env.sim.step()
        touched += data.ncon
    assert touched > 5
    np.testing.assert_allclose(env.sim.data["qpos"].numpy(), np.tile(data.qpos, (WORLDS, 1)), atol=2e-5)
    np.testing.assert_allclose(env.sim.data["qvel"].numpy(), np.tile(data.qvel, (WORLDS, 1)), atol=5e-4)
    assert env.sim.forwards == 60
    torch.testing.assert_close(env.sim.data["time"], torch.full((WORLDS,), 0.3))
    assert physics.faults == []
    physics.restore()
    with pytest.raises(AssertionError, match="MuJoCo's own step"):
        env.sim.step()


def test_randomised_quantities_of_mjlab_are_adopted_or_named(model):
    drawn = [0.01, 0.02, 0.05]
    env = environment(
        body_ipos=((1, 0), drawn), geom_friction=((1, 0), [0.3, 0.7, 1.1]), geom_rgba=((1, 0), [0.1, 0.2, 0.3])
    )
    with pytest.warns(UserWarning, match="ignores the randomisation of geom_rgba"):
        physics = use_dynamics(env, model)
    assert physics.quantities[0] == "robot/floating.com.x"
    assert physics.quantities[1] == "contact.friction"
    assert physics.left_out == ("geom_rgba",)
    start = env.sim.data["qpos"].clone()
    env.sim.data["qvel"][:, 4] = 2.0
    state = SceneColumns(env.sim.mj_model, model, torch.device("cpu")).state(start, env.sim.data["qvel"])
    env.sim.step()
    free = model.freeing(physics.quantities)
    numbers = torch.tensor([[x, mu] for x, mu in zip(drawn, [0.3, 0.7, 1.1], strict=True)])
    where = Environment(
        ground=free.resolve_environment(None).ground, parameters=WorldParameters(physics.quantities, numbers)
    )
    _, step = free.step(free.begin(state, where), state, Control(target=torch.zeros(WORLDS, 1)))
    torch.testing.assert_close(env.sim.data["qpos"][:, :3], step.state.q[:, :3])
    torch.testing.assert_close(env.sim.data["qpos"][:, 7], step.state.q[:, 7])
    assert len(set(env.sim.data["qpos"][:, 7].tolist())) == WORLDS


def test_a_world_that_breaks_down_rests_until_it_is_reset(model):
    env = environment()
    physics = use_dynamics(env, model)
    env.sim.data["qvel"][1, 0] = float("inf")
    env.sim.step()
    assert [(fault.world, fault.worlds) for fault in physics.faults] == [(1, 1)]
    kept = env.sim.data["qpos"][1].clone()
    env.sim.step()
    assert torch.equal(env.sim.data["qpos"][1], kept)
    assert (env.sim.data["qvel"][1] == 0).all()
    env.sim.reset(torch.tensor([1]))
    env.sim.step()
    assert not torch.equal(env.sim.data["qpos"][1], kept)
    assert len(physics.faults) == 1


def test_longer_frames_move_at_once_and_others_are_refused(model, tmp_path):
    env = environment()
    env.sim.mj_model.opt.timestep = 0.003
    said = r"frames of 0.005 s; valid: 0.003 s times a divisor of the decimation \(4\)"
    with pytest.raises(MismatchError, match=said):
        use_dynamics(env, model)
    env = environment()
    env.sim.mj_model.opt.timestep = 0.0025
    use_dynamics(env, model)
    before = env.sim.data["qpos"].clone()
    env.sim.step()
    after = env.sim.data["qpos"].clone()
    assert (after != before).any()
    env.sim.step()
    assert torch.equal(env.sim.data["qpos"], after)
    env.sim.step()
    assert not torch.equal(env.sim.data["qpos"], after)


def test_a_network_of_an_environments_steps_moves_by_its_roll_out(tmp_path):
    """Of 20 ms, with a memory, which a reset of a world clears."""
    (tmp_path / "scene.xml").write_text(SCENE)
    robot = declare(tmp_path / "scene.xml", tmp_path / "robot", dt=0.02).robot
    spec = robot.spec
    torch.manual_seed(0)
    rates = torch.randn(64, spec.nv)
    encoding = fit_encoding(spec, rates, 0.01 * torch.randn(64, spec.nv), 0.01 * torch.randn(64, spec.nv))
    config = ModelConfig(
        kind="neural", net=NetConfig(kind="gru", width=8, depth=1, head=0), encoding=encoding.config,
        robot=str(tmp_path / "robot"),
    )  # fmt: skip
    network = build_model(config, ModelSpec(state=spec, fingerprint=articulation(robot).fingerprint))
    network.predictor.fit(torch.randn(64, network.encoding.inputs), 0.01 * torch.randn(64, network.encoding.outputs))
    for weight in network.predictor.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    env = environment()
    physics = use_dynamics(env, network.requires_grad_(False))
    columns = SceneColumns(env.sim.mj_model, network, torch.device("cpu"))
    start = columns.state(env.sim.data["qpos"].clone(), env.sim.data["qvel"].clone())
    commands = 0.3 * torch.randn(WORLDS, 5, 1)
    for command in commands.unbind(1):
        env.sim.data["ctrl"][:] = command
        for _ in range(4):
            env.sim.step()
    path = network.rollout(start, commands)
    found = columns.state(env.sim.data["qpos"], env.sim.data["qvel"])
    torch.testing.assert_close(found.q, path.q[:, -1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.qd, path.qd[:, -1], atol=1e-5, rtol=1e-5)
    assert (path.q[:, -1] - path.q[:, 0]).abs().max() > 1e-3
    assert physics.faults == []
    env.sim.data["qpos"][1], env.sim.data["qvel"][1] = torch.from_numpy(env.sim.mj_model.qpos0).float(), 0.0
    env.sim.reset(torch.tensor([1]))
    env.sim.data["ctrl"][:] = commands[:, 0]
    env.sim.step()
    again = columns.state(env.sim.data["qpos"], env.sim.data["qvel"])
    torch.testing.assert_close(again.q[1], path.q[1, 1], atol=1e-5, rtol=1e-5)


def test_scenes_of_another_robot_are_refused_by_name(model):
    pytest.importorskip("newton", reason="the extra `newton` is not installed")
    other = declared_hybrid(load("cartpole"))
    scene = mujoco.MjModel.from_xml_string(SCENE)
    with pytest.raises(InputError, match="the scene has no joint 'slider'"):
        SceneColumns(scene, other, torch.device("cpu"))
    more = SCENE.replace("</worldbody>", '<body name="ball"><joint name="roll"/><geom size=".1"/></body></worldbody>')
    with pytest.raises(InputError, match="joint 'roll' moves, but the model of 'scene' does not have it"):
        SceneColumns(mujoco.MjModel.from_xml_string(more), model, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize(("robot", "frames"), [("Go1", 10), ("G1", 16)])
def test_a_velocity_task_runs_on_a_model(tmp_path, robot, frames):
    """Its managers, rewards and randomisation; the model is declared from its scene, so motion is MuJoCo-Warp's.

    From its tenth frame on, a hand of G1 touches its hip.
    """
    pytest.importorskip("mjlab", reason="mjlab is not installed: `make test-environments` runs this beside it")
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    wp.config.quiet = True

    def run(physics: bool) -> list[torch.Tensor]:
        cfg = load_env_cfg(f"Mjlab-Velocity-Flat-Unitree-{robot}")
        cfg.scene.num_envs, cfg.seed = 4, 1
        env = ManagerBasedRlEnv(cfg=cfg, device="cpu")
        torch.manual_seed(0)
        env.reset(seed=3)
        if physics:
            declare_scene(env.scene, tmp_path / "robot", simulation=env.sim)
            placed = use_dynamics(env, declared_hybrid(tmp_path / "robot", substeps=1))
            assert placed.left_out == ()
            assert any(name.endswith(".com.x") for name in placed.quantities)
        torch.manual_seed(0)
        joints, found = env.action_manager.total_action_dim, []
        for frame in range(frames):
            action = 0.3 * torch.sin(torch.arange(joints) + 0.4 * frame).expand(4, joints)
            seen, reward, *_ = env.step(action)
            found.append(
                torch.cat([wp.to_torch(env.sim.wp_data.qpos), reward[:, None], seen["actor"][:, :9]], 1).clone()
            )
        return found

    for own, models in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(own, models, atol=1e-4, rtol=1e-3)
