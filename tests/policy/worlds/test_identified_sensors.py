# SPDX-License-Identifier: Apache-2.0
"""Errors of sensors that a run identified become disturbances of policies of sensors that train in it."""

import msgspec
import pytest

from neurodyn.core.artifacts import write_json
from neurodyn.core.description.sensors import Sensor
from neurodyn.identify.result import IDENTIFICATION, IdentificationFigures, IdentifiedParameter, SensorErrors
from neurodyn.policy.worlds.disturbances import disturbances_of
from neurodyn.policy.worlds.identified_sensors import with_sensor_errors
from neurodyn.tasks import load
from neurodyn.tasks.running import AntRun

ROOT_3 = 3.0**0.5


class SensedAnt(AntRun):
    """The ant's run, whose robot declares an IMU."""

    observes = "sensors"

    def declaration(self):
        return msgspec.structs.replace(super().declaration(), sensors={"imu": Sensor(kind="imu")})


@pytest.fixture
def run(tmp_path):
    (tmp_path / "model").mkdir()
    figures = IdentificationFigures(
        robot="ant",
        parameters=[
            IdentifiedParameter(name="imu.delay", value=0.004, interval=[0.003, 0.005], nominal=0.0),
            IdentifiedParameter(name="motors.delay", value=0.004, interval=[0.0, 0.006], nominal=0.0),  # of no sensor
            IdentifiedParameter(name="imu.bias.angular_velocity.z", value=0.02, interval=None, nominal=0.0),
            IdentifiedParameter(name="root.mass", value=30.0, interval=[29.0, 31.0], nominal=5.0),
        ],
        noise={"q.hip_1": 0.002, "qd.hip_1": 0.05, "q.root.x": 0.1},
        sensors={
            "imu.angular_velocity.x": SensorErrors(nominal=0.1, identified=0.05, noise=0.02),
            "imu.specific_force.x": SensorErrors(nominal=3.0, identified=2.0, noise=0.2),
            "attitude.quaternion.ry": SensorErrors(nominal=0.1, identified=0.05, noise=0.008),
        },
    )
    write_json(tmp_path / IDENTIFICATION, figures.plain())
    return str(tmp_path)


def test_noise_offsets_and_delays_are_those_of_the_log(run):
    texts = with_sensor_errors((), run, SensedAnt())
    draws = {(one.names[0], one.each): one for one in disturbances_of(texts, SensedAnt())}
    delay = draws["delay.gyroscope", "episode"]
    assert (delay.lower, delay.upper) == (0.003, 0.005)
    bias = draws["observation.gyroscope.z", "episode"]
    assert (bias.lower, bias.upper, bias.change) == (0.02, 0.02, "add")
    for column, deviation in (("gyroscope.x", 0.02), ("gravity.y", 0.008), ("hip_1", 0.002), ("hip_1_velocity", 0.05)):
        assert draws[f"observation.{column}", "step"].upper == pytest.approx(ROOT_3 * deviation, rel=1e-4)
    assert len(draws) == 6


def test_what_the_user_asks_for_wins(run):
    texts = with_sensor_errors(("delay.*=0:.01", "observation.hip_1=+-.1:.1:step"), run, SensedAnt())
    assert [text for text in texts if text.startswith("delay.")] == ["delay.*=0:.01"]
    assert [text for text in texts if "hip_1=" in text] == ["observation.hip_1=+-.1:.1:step"]
    disturbances_of(texts, SensedAnt())


def test_policies_of_the_state_and_other_dynamics_get_nothing(run, tmp_path):
    assert with_sensor_errors(("a=1:2",), run, load("ant-run")) == ("a=1:2",)
    assert with_sensor_errors((), "hybrid", SensedAnt()) == ()
    (tmp_path / IDENTIFICATION).unlink()
    assert with_sensor_errors((), run, SensedAnt()) == ()
