# SPDX-License-Identifier: Apache-2.0
import mujoco
import numpy as np
import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.seeds import generator
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.robots.declaration import Joint
from neurodyn.robots.sections import ContactPointSelection, Ranges, SimulatorConfig
from neurodyn.sim.declaration.missing_features import missing_features
from neurodyn.sim.sampling import sample_states
from neurodyn.sim.simulators import simulator

ARM = """<mujoco><option timestep="0.002" cone="elliptic"/><worldbody>
  <body name="base" pos="0 0 .12"><joint name="shoulder" axis="0 0 1" damping=".2"/>
    <geom name="upper" type="capsule" fromto="0 0 0 .25 0 0" size=".03"/>
    <body name="fore" pos=".25 0 0"><joint name="elbow" axis="0 1 0" damping=".1" armature=".01"/>
      <geom name="forearm" type="capsule" fromto="0 0 0 .2 0 0" size=".025"/>
      <body name="hand" pos=".2 0 0"><geom name="palm" type="box" size=".03 .04 .02" pos=".03 0 0"/></body>
    </body></body>
  <body name="cube" pos=".4 0 .05"><freejoint name="cube"/>
    <geom name="cube" type="box" size=".05 .05 .05" mass=".2" condim="4" friction=".7 .01 .001"/></body>
</worldbody></mujoco>"""


@pytest.fixture
def arm(tmp_path):
    (tmp_path / "arm.xml").write_text(ARM)
    joints = [Joint(name=name, kind="revolute", continuous=True) for name in ("shoulder", "elbow")]
    places = {"cube.x": (0.44, 0.46), "cube.y": (-0.02, 0.02), "cube.z": (0.05, 0.052)}
    return Robot(
        name="arm", joints=(*joints, Joint(name="cube", kind="free")), actuated={"shoulder": 2.0, "elbow": 2.0},
        dt=0.002, asset=str(tmp_path / "arm.xml"), simulator=SimulatorConfig(solver="mujoco-c", substeps=1),
        grounds={"floor": Scene(shapes=(Plane(),))}, ground="floor", contact_points=ContactPointSelection(),
        self_contacts=True,
        sampling=Ranges(
            q={"shoulder": (-0.1, 0.1), "elbow": (-0.2, 0.0), **places}, qd={"shoulder": (-1, 1), "elbow": (-1, 1)}
        ),
    )  # fmt: skip


def test_an_arm_that_pushes_a_cube_moves_as_in_mujoco(arm):
    scene = arm.named_ground()
    rng = generator(0, "cube")
    q = torch.tensor([[0.0, 0.05, 0.5, 0.0, 0.05, 0, 0, 0, 1], [0.1, 0.1, 0.5, 0.02, 0.06, 0, 0, 0.6, 0.8]])
    qd = torch.from_numpy(rng.normal(size=(2, 8))).float() * 0.1
    torque = torch.tensor([0.2, 1.5]).expand(2, 100, 2).contiguous()
    truth = simulator(arm, 2, scene=scene).rollout(q, qd, torque)
    hybrid = declared_hybrid(arm).double()
    assert len(hybrid.mechanism.shape_contacts) == 3
    path = hybrid.rollout(
        State(q.double(), qd.double()), torque.double(), environment=Environment(ground=Ground(scene))
    )
    assert (truth[0][:, -1, 2:5] - q[:, 2:5]).norm(dim=1).max() > 1e-3  # it is pushed
    if tuple(map(int, mujoco.__version__.split(".")[:2])) >= (3, 12):  # older ones place contacts of boxes otherwise
        torch.testing.assert_close(path.q.float(), truth[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(path.qd.float(), truth[1], rtol=1e-4, atol=1e-4)  # its solver stops early


CLAWS = """<mujoco><option timestep="0.002" cone="elliptic" integrator="implicitfast"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1" friction="1 .01 .001"/>
  <body name="palm" pos="0 0 1"><joint name="lift" type="slide" axis="0 0 1" stiffness="100" damping="1"/>
    <geom name="palm" type="sphere" size=".05"/>
    <body name="left" pos="0 .06 0"><joint name="left" axis="1 0 0" damping=".01"/>
      <geom name="left" type="capsule" fromto="0 0 0 .02 0 -.2" size=".02" condim="1" friction=".3"/></body>
    <body name="right" pos="0 -.06 0"><joint name="right" axis="1 0 0" damping=".01"/>
      <geom name="right" type="capsule" fromto="0 0 0 -.02 0 -.2" size=".03" condim="1" friction=".3"/></body>
  </body></worldbody></mujoco>"""


def test_links_touch_each_other_with_their_own_numbers(tmp_path):
    """Those of the asset, whatever its floor has, as MuJoCo steps it without us."""
    (tmp_path / "claws.xml").write_text(CLAWS)
    joints = (Joint(name="lift", kind="prismatic"), *(Joint(name=name, kind="revolute") for name in ("left", "right")))
    robot = Robot(
        name="claws", joints=joints, actuated={"left": 2.0, "right": 2.0}, dt=0.002, asset=str(tmp_path / "claws.xml"),
        simulator=SimulatorConfig(solver="mujoco-c", substeps=1), grounds={"floor": Scene(shapes=(Plane(),))},
        ground="floor", contact_points=ContactPointSelection(shapes=("palm",)), self_contacts=True,
    )  # fmt: skip
    hybrid = declared_hybrid(robot).double()
    assert len(hybrid.mechanism.shape_contacts) == 1
    model = mujoco.MjModel.from_xml_string(CLAWS)
    data = mujoco.MjData(model)
    torque, rows, touched = torch.tensor([-0.3, 0.5], dtype=torch.double), [], 0
    for _ in range(150):
        data.qfrc_applied[1:] = torque
        mujoco.mj_step(model, data)
        rows.append(data.qpos.copy())
        touched += int(data.ncon > 0)
    start = State(torch.zeros(1, 3).double(), torch.zeros(1, 3).double())
    path = hybrid.rollout(start, torque.expand(1, 150, 2), environment=Environment(ground=Ground(robot.named_ground())))
    assert touched > 50
    torch.testing.assert_close(path.q[0, 1:], torch.tensor(np.array(rows)), rtol=0, atol=1e-6)


def test_objects_start_where_the_declaration_says(arm):
    q, qd = sample_states(arm, 20, generator(0, "start"), Ground(arm.named_ground()))
    assert ((q[:, 2] >= 0.44) & (q[:, 2] <= 0.46) & (q[:, 4] >= 0.0499)).all()
    assert (q[:, 5:7] == 0).all()
    assert q[:, 7].abs().max() > 0.1
    assert not qd[:, 2:].any()


def test_what_is_not_modelled_is_reported_once(monkeypatch):
    monkeypatch.setattr(mujoco, "__version__", "3.17.0")
    assert missing_features(mujoco.MjModel.from_xml_string(ARM)) == ()
    other = ARM.replace('cone="elliptic"', 'integrator="RK4" density="1.2" noslip_iterations="3"')
    words = missing_features(mujoco.MjModel.from_xml_string(other))
    assert [line.split(":")[0] for line in words] == ["integrator RK4", "3 noslip iterations"]


def test_a_version_of_mujoco_with_other_colliders_is_named(monkeypatch):
    monkeypatch.setattr(mujoco, "__version__", "3.11.0")
    (line,) = missing_features(mujoco.MjModel.from_xml_string(ARM))
    assert line == (
        "1 pair of box and box: MuJoCo 3.11.0 places their contacts otherwise than MuJoCo 3.12 and later, which "
        "compiled models follow"
    )
    monkeypatch.setattr(mujoco, "__version__", "3.12.0")
    assert missing_features(mujoco.MjModel.from_xml_string(ARM)) == ()
