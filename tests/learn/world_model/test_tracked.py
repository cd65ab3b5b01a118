# SPDX-License-Identifier: Apache-2.0
"""World models of logs whose base was tracked: its motion as channels, and its path integrated from them."""

from pathlib import Path

import msgspec
import numpy as np
import torch

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.data.header import StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.world_model.base_path import with_base_path
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.geometry import rotation
from neurodyn.learn.world_model.train import train_world_model
from neurodyn.learn.world_model.trainer import WorldValidation
from neurodyn.robots import load
from neurodyn.robots.base_channels import with_tracked_channels
from tests import worlds
from tests.learn.world_model.test_train import QUICK

COM = (0.05, -0.1, 0.2)
DT, FRAMES = 0.01, 200
ROBOT = load(Path(__file__).parents[3] / "examples" / "real_robots" / "crazyflie")


def flights(episodes: int = 4) -> Store:
    """Flights of a body along smooth curves from a turned pose, whose velocity is that of an off-centre mass."""
    time = DT * torch.arange(FRAMES + 1, dtype=torch.float64)
    rows, random = [], np.random.default_rng(0)
    for _ in range(episodes):
        spin = torch.stack(
            [0.8 * torch.sin(3 * time), 0.5 * torch.cos(2 * time), 0.7 - 0.4 * torch.cos(time)], 1
        )  # base axes
        turned = [rotation.exponential(torch.tensor(random.normal(size=3)))]
        for k in range(FRAMES):
            turned.append(rotation.multiply(turned[-1], rotation.exponential(0.5 * DT * (spin[k] + spin[k + 1]))))
        pose, phase = torch.stack(turned), float(random.uniform(0, 3))
        origin = torch.stack([torch.sin(time + phase), torch.cos(2 * time), 0.3 * time], 1)
        moving = torch.stack([torch.cos(time + phase), -2 * torch.sin(2 * time), 0.3 + 0 * time], 1)
        world = rotation.rotate(pose, spin)
        arm = rotation.rotate(pose, torch.tensor(COM, dtype=torch.float64).expand(FRAMES + 1, 3))
        lift = torch.sin(2 * time + phase)[:, None].expand(-1, 4)
        rows.append(torch.cat([origin, pose, moving + torch.linalg.cross(world, arm), world, lift], 1))
    table = episode_table(np.full(episodes, FRAMES), split=np.arange(episodes) % 4 // 2)
    header = StoreHeader(
        spec=ROBOT.spec, source="log", contact_points=ContactPointLayout(joints=(), contact_points=(), base_com=COM)
    )
    return Store(header=header, frames=torch.cat(rows).float().numpy(), table=table)


def test_the_path_of_a_base_is_that_of_its_channels():
    store = flights()
    seen = with_tracked_channels(store)
    names = [channel.name for channel in seen.header.spec.channels]
    assert names[0] == "base_linear_velocity.x"
    assert names[-1] == "projected_gravity.z"
    assert (seen.header.spec.nq, seen.header.spec.nv) == (0, 0)
    whole = torch.from_numpy(store.frames).double().unflatten(0, (4, FRAMES + 1))
    channels = torch.from_numpy(seen.channel.copy()).double().unflatten(0, (4, FRAMES + 1))
    nothing = channels[..., :0]
    start = State(whole[:, 0, :7], whole[:, 0, 7:13])
    path = with_base_path(seen.header.spec, start, Trajectory(nothing, nothing, channels), COM)
    assert torch.allclose(path.q[..., :3], whole[..., :3], atol=2e-4)
    off = rotation.logarithm(rotation.multiply(rotation.conjugate(path.q[..., 3:]), whole[..., 3:7]))
    assert float(off.abs().max()) < 1e-5
    assert torch.allclose(path.qd, whole[..., 7:13], atol=1e-5)


def test_gravity_levels_a_base_whose_forecast_spin_is_wrong():
    seen = with_tracked_channels(flights())
    channels = torch.from_numpy(seen.channel.copy()).double().unflatten(0, (4, FRAMES + 1))
    wrong = channels.clone()
    wrong[..., 3] += 0.5
    start = State(torch.from_numpy(flights().q).double().unflatten(0, (4, -1))[:, 0], channels[:, 0, :6])
    path = with_base_path(seen.header.spec, start, Trajectory(channels[..., :0], channels[..., :0], wrong), COM)
    gravity = torch.tensor([0.0, 0.0, -1.0]).double().expand(4, FRAMES + 1, 3)
    down = rotation.rotate(rotation.conjugate(path.q[..., 3:]), gravity)
    assert torch.allclose(down, channels[..., 6:9], atol=1e-5)


def test_a_robot_without_joints_is_learned_from_motion_capture(tmp_path):
    settings = msgspec.structs.replace(QUICK, steps=60, constant="hold")
    seen = with_tracked_channels(flights(12))
    train_world_model(ROBOT, "drone", "drone.h5", seen, tmp_path / "run", settings)
    validation = WorldValidation(seen, QUICK, torch.device("cpu"))
    spin = [k for k, name in enumerate(seen.header.spec.channels) if name.quantity == "base_angular_velocity"]
    still = seen.channel[:, spin].std(0) / 4.0
    assert (np.array(validation.measure(WORLD_MODEL.load(tmp_path / "run")).columns)[spin] < still).all()
    blank = WorldModel(seen.header.spec.with_context(6), worlds.SMALL)
    with torch.no_grad():
        blank.shift.fill_(1.0)
    worse = validation.beside_baselines(blank)
    assert [one.grade for one in worse] == ["fails"]
    assert "worse than persistence" in worse[0].what
