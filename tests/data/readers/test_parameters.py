# SPDX-License-Identifier: Apache-2.0
"""Quantities that differ between the runs of a log: by row or by run, in steps or averaged."""

import re

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.commands import DeclaredCommands
from neurodyn.data.readers.logs import import_logs, read_logs
from neurodyn.data.store import Store
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_motors
from neurodyn.identify.settings import AdaptationSettings
from neurodyn.identify.unknowns.bodies import loads_of
from neurodyn.robots import load as load_robot

from .conftest import SPEC, npz_arrays, npz_map

ARM = """<mujoco><compiler angle="radian"/><worldbody><body name="lift"><joint name="lift" type="slide" axis="0 0 1"/>
<inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/><body name="turn"><joint name="turn" axis="0 1 0"/>
<inertial pos="0 0 -0.2" mass="0.5" diaginertia="0.01 0.01 0.005"/></body></body></worldbody>
<actuator><motor name="lift" joint="lift"/><motor name="turn" joint="turn"/></actuator></mujoco>"""
DECLARATION = """
name: arm
asset: arm.xml
joints: [{name: lift, kind: prismatic}, {name: turn, kind: revolute, continuous: true}]
actuated: {lift: 20.0, turn: 5.0}
dt: 0.02
simulator: {solver: mujoco-c, substeps: 4, integrator: implicitfast}
sampling: {q: {lift: [-1, 1]}, qd: {'*': [-5, 5]}}
"""


@pytest.fixture
def log(tmp_path):
    """A log whose second run switches its motor off for a while."""
    arrays = npz_arrays()
    offsets, runs = arrays["offsets"], len(arrays["offsets"]) - 1
    on = np.ones(int(offsets[-1]), np.int8)
    middle = int(offsets[1] + offsets[2]) // 2
    on[middle : middle + 20] = 0
    volts = np.linspace(11.0, 12.0, len(on))
    np.savez(tmp_path / "log.npz", **arrays, on=on, volts=volts, load=100.0 * np.arange(runs))
    return tmp_path / "log.npz"


GIVEN = {
    "actuator.turn.supply": {"column": "on"}, "payload.mass": {"column": "load", "scale": 0.001},
    "volts": {"column": "volts", "averaged": True},
}  # fmt: skip


def test_episodes_end_where_a_quantity_changes_and_keep_its_value(log, tmp_path):
    plain, store = read_logs([log], npz_map(), SPEC), read_logs([log], npz_map(parameters=GIVEN), SPEC)
    assert list(store.header.parameters) == list(GIVEN)
    assert len(store.lengths) == len(plain.lengths) + 2  # before, while and after it is off
    assert store.parameters is not None
    supply, mass, volts = store.parameters.T
    assert sorted(set(supply.tolist())) == [0.0, 1.0]
    assert (supply == 0.0).sum() == 1
    runs = store.run
    np.testing.assert_allclose(mass, 0.1 * runs)
    assert (np.diff(volts) > 0).all()
    written = import_logs([log], npz_map(parameters=GIVEN), SPEC, tmp_path / "log.h5")
    np.testing.assert_array_equal(Store.open(tmp_path / "log.h5").parameters, store.parameters)
    assert written.header.parameters["payload.mass"] == pytest.approx(float(mass.mean()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload.mass": {"column": "weight"}}, "has no array 'weight'"),
        ({"payload.mass": {"column": "on", "averaged": "yes"}}, "averaged"),
        ({"payload.mass": {"column": []}}, "a column is an empty list"),
    ],
)
def test_parameters_that_cannot_be_are_refused(log, given, said):
    with pytest.raises((InputError, ValueError), match=said):
        read_logs([log], npz_map(parameters=given), SPEC)


LOADED = {"turn.payload": {"column": "load", "scale": 0.001, "place": [0.0, 0.0, 0.1], "radius": 0.02}}


def test_a_payload_of_each_run_changes_the_body_that_carries_it(tmp_path):
    """A weight of 0, 100, 200 g at a known place of a link, by run."""
    (tmp_path / "arm.xml").write_text(ARM)
    (tmp_path / "robot.yaml").write_text(DECLARATION)
    robot = load_robot(tmp_path / "robot.yaml")
    arrays = npz_arrays()
    np.savez(tmp_path / "log.npz", **arrays, load=100.0 * np.arange(len(arrays["offsets"]) - 1))
    columns, declared = npz_map(parameters=LOADED), DeclaredCommands(loads=loads_of(robot))
    written = import_logs([tmp_path / "log.npz"], columns, SPEC, tmp_path / "log.h5", declared=declared)
    assert written.header.parameters["turn.mass"] == pytest.approx(0.5)  # without a load
    values = Store.open(tmp_path / "log.h5").parameters
    assert values is not None
    body = dict(zip(written.header.parameters, values[2].tolist(), strict=True))
    assert body["turn.mass"] == pytest.approx(0.7)
    assert body["turn.com.z"] == pytest.approx((0.5 * -0.2 + 0.2 * 0.1) / 0.7)
    apart = 0.5 * 0.2 / 0.7 * 0.3**2 + 0.2 * 0.02**2
    assert body["turn.inertia.xx"] == pytest.approx(0.01 + apart, rel=1e-5)
    assert body["turn.inertia.zz"] == pytest.approx(0.005 + 0.2 * 0.02**2, rel=1e-5)
    model = FitModel.declared(with_motors(robot, written), "arm", AdaptationSettings(), tuple(body))
    space = structures(model, AdaptationSettings(), ())[0].space
    assert "turn.mass" in space.quantities
    assert not [one.name for one in space.coordinates if "turn.mass" in one.quantities]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"turn.payload": {"column": "load"}}, "'turn.payload' has no `place`; valid: the mass of a payload"),
        ({"turn.mass": {"column": "load", "place": [0, 0, 0]}}, "'turn.mass' has a `place`"),
        ({"elbow.payload": LOADED["turn.payload"]}, "no joint 'elbow'; valid: lift, turn"),
        ({"turn.payload": {**LOADED["turn.payload"], "scale": -1.0}}, "turn.payload is -200 kg"),
    ],
)
def test_payloads_that_cannot_be_are_refused(log, tmp_path, given, said):
    (tmp_path / "arm.xml").write_text(ARM)
    (tmp_path / "robot.yaml").write_text(DECLARATION)
    declared = DeclaredCommands(loads=loads_of(load_robot(tmp_path / "robot.yaml")))
    with pytest.raises((InputError, ValueError), match=re.escape(said)):
        import_logs([log], npz_map(parameters=given), SPEC, tmp_path / "log.h5", declared=declared)


def test_a_payload_needs_the_links_of_a_robot(log):
    with pytest.raises(InputError, match="a payload needs the links of a robot"):
        read_logs([log], npz_map(parameters=LOADED), SPEC)
