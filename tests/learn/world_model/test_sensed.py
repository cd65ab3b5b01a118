# SPDX-License-Identifier: Apache-2.0
"""World models of robots that nobody tracks: logs of sensors as channels, and a training on them."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from neurodyn.control.resolve import open_dynamics
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics import Control
from neurodyn.dynamics.artifact import load as load_model
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.learn.training import train
from neurodyn.robots import load
from neurodyn.robots.base_channels import open_measured_data
from neurodyn.tasks import ObservationTerm, Task
from tests.estimate import tripod
from tests.learn.world_model.test_train import QUICK


@pytest.fixture(scope="module")
def sensed(tmp_path_factory):
    """A log of a tripod with a turned IMU, without its base, and the same log with it."""
    tracked = tripod.tracked_log(3)
    frames = np.array(tracked.frames)
    frames[:, :7] = np.nan
    frames[:, tracked.header.spec.nq :][:, :6] = np.nan
    header = msgspec.structs.replace(tracked.header, base="unmeasured")
    table = tracked.table.copy()
    table["split"] = [0, 1, 2]
    path = tmp_path_factory.mktemp("sensed") / "log.h5"
    replace(tracked, header=header, frames=frames, table=table).write(path)
    return path, tracked


def test_sensors_stand_in_place_of_the_base_in_its_axes(sensed):
    path, tracked = sensed
    store = open_measured_data(load(tripod.declaration()), path)
    assert store.header.base == "measured"
    assert [joint.name for joint in store.header.spec.joints] == ["leg0", "leg1", "leg2"]
    channels = dict(zip([one.name for one in store.header.spec.channels], np.asarray(store.channel).T, strict=True))
    turn = np.moveaxis(np.array(quaternion_matrix(tuple(np.asarray(tracked.q[:, 3:7], float).T))), -1, 0)
    spin = np.einsum("tji,tj->ti", turn, np.asarray(tracked.qd[:, 3:6]))
    for k, axis in enumerate("xyz"):
        np.testing.assert_allclose(channels[f"projected_gravity.{axis}"], -turn[:, 2, k], atol=0.03)
        np.testing.assert_allclose(channels[f"base_angular_velocity.{axis}"], spin[:, k], atol=0.08)


def test_a_recurrent_model_learns_them(sensed, tmp_path):
    path, _ = sensed
    robot = tripod.declaration()
    train(str(robot), path, tmp_path / "run", kind="world-model", size=QUICK, steps=2)
    model = load_model(tmp_path / "run")
    assert [one.name for one in model.spec.channels][-1] == "projected_gravity.z"


class Upright(Task):
    """Stay upright: what the direction of gravity tells."""

    robot = str(tripod.declaration())
    needs = ("projected_gravity",)
    actions = ("actuator0", "actuator1", "actuator2")
    action_scale = (0.5,) * 3
    action_meaning = "target of the servo [rad]"
    frames = 20

    def control(self, action, quantities, memory):
        return Control(target=0.5 * action)

    def observation_terms(self):
        return {"policy": (ObservationTerm("projected_gravity", columns=("gx", "gy", "gz")),)}

    def reward(self, quantities, memory, action):
        return {"upright": -quantities["projected_gravity"][..., 2]}

    def terminated(self, quantities, memory):
        return quantities["projected_gravity"][..., 2] > 0.0


def test_imagined_episodes_begin_in_its_own_log(sensed, tmp_path):
    train(Upright.robot, sensed[0], tmp_path / "run", kind="world-model", size=QUICK, steps=8)
    imagined = open_dynamics(Upright(), str(tmp_path / "run"))
    assert isinstance(imagined.log, Store)
    assert not imagined.dynamics.spec.differences(imagined.log.header.spec)
    assert [one.name for one in imagined.log.header.spec.channels][-1] == "projected_gravity.z"


def test_what_a_world_model_needs_is_said(sensed, tmp_path):
    tracked = sensed[1]
    header = msgspec.structs.replace(tracked.header, base="unmeasured", streams=tracked.header.streams[:1], sensors={})
    blind = replace(tracked, header=header, measured=tracked.measured[:, :6])
    blind.write(tmp_path / "blind.h5")
    with pytest.raises(InputError, match=r"its streams are imu \(imu\); valid: a gyroscope or imu, and an orientation"):
        open_measured_data(load(tripod.declaration()), tmp_path / "blind.h5")
