# SPDX-License-Identifier: Apache-2.0
"""What cannot be exported is refused in one line before anything is written."""

import json

import msgspec
import numpy as np
import pytest

from neurodyn import InputError, robots
from neurodyn.cli.main import run
from neurodyn.core.artifacts import read_json
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import Notice
from neurodyn.dynamics import HybridDynamics, declared_hybrid
from neurodyn.dynamics.artifact import save
from neurodyn.dynamics.behind_drives import put_behind_drives
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.interop import SIMULATOR_FORMATS, export_identified
from neurodyn.interop.identified import IdentifiedRobot, number
from neurodyn.multibody.engine import EngineConfig
from tests.interop.runs import identified_run, network_run, write_arm


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cartpole")
    identified_run(folder, "cartpole", "hinge.mass=2.7", "hinge.damping=.3")
    return folder


@pytest.mark.parametrize("to", list(SIMULATOR_FORMATS))
def test_every_target_writes_a_folder_that_says_what_was_identified(cartpole, tmp_path, to, capsys):
    assert run(["export", str(cartpole), "--to", to, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "holds: hinge.mass, hinge.damping" in printed
    texts = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert any("hinge.mass" in text and "2.7" in text for text in texts)


def test_existing_files_are_never_replaced(cartpole, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    assert run(["export", str(cartpole), "--to", "mjcf", "--out", str(tmp_path / "mine")]) == 2
    assert "mine: exists; valid: the path of a folder that does not (--out)" in capsys.readouterr().err
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]


def test_an_unknown_target_names_those_that_there_are(cartpole, capsys):
    assert run(["export", str(cartpole), "--to", "gazebo"]) == 2
    error = capsys.readouterr().err
    assert "unknown format 'gazebo'; valid: c, c-base-filter, cpp-header, " in error
    for name in SIMULATOR_FORMATS:
        assert name in error


def test_a_model_that_is_no_hybrid_is_refused(tmp_path, capsys):
    assert run(["export", "pretrained:cartpole", "--to", "urdf", "--out", str(tmp_path / "out")]) == 2
    assert "pretrained:cartpole: holds a neural model; valid here: a hybrid model" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_no_robot(tmp_path, capsys):
    assert run(["export", str(tmp_path / "data.h5"), "--to", "urdf"]) == 2
    assert "is a dataset; say in which format with --to; valid: lerobot, mcap" in capsys.readouterr().err


def test_networks_of_a_blueprint_are_named(tmp_path):
    robot = robots.load("cartpole")
    mechanism, fingerprint, scene = declared_mechanism(robot, None)
    networks = (Augmentation(quantities=("passive.hinge", "torque.slider"), inputs=("qd.hinge",), hidden=(2,)),)
    config = EngineConfig(substeps=1, blueprint=Blueprint(networks))
    save(tmp_path / "run", HybridDynamics(robot.spec, mechanism, config, (), fingerprint, scene))
    with pytest.raises(InputError, match=r"has networks that act on passive\.hinge, torque\.slider, for which MJCF"):
        export_identified(tmp_path / "run", "newton")
    assert not (tmp_path / "run" / "newton").exists()


def test_files_of_robots_have_no_place_for_an_actuator_network(tmp_path):
    network_run(tmp_path / "run")
    with pytest.raises(InputError, match=r"actuator network of shoulder, elbow, which URDF cannot hold"):
        export_identified(tmp_path / "run", "urdf")
    with pytest.raises(InputError, match=r"run: holds no identified robot, which MJCF needs"):
        export_identified(tmp_path / "run", "mjcf")


@pytest.mark.parametrize("to", ["newton", "isaaclab", "mjlab"])
def test_networks_that_see_other_signals_are_refused(tmp_path, to):
    network_run(tmp_path / "run", signals=("position_error", "effort_command"))
    with pytest.raises(InputError, match=r"sees position_error, effort_command, but networks of .* see position_error"):
        export_identified(tmp_path / "run", to)
    network_run(tmp_path / "gru", network="gru", hidden=(3,), history=(0.0,), signals=("velocity", "effort_command"))
    with pytest.raises(InputError, match=r"effort_command|is a gru"):
        export_identified(tmp_path / "gru", to)


def test_damaged_networks_are_refused(tmp_path):
    network_run(tmp_path / "run")
    described = read_json(tmp_path / "run" / "actuator_network.json")
    (tmp_path / "run" / "actuator_network.json").write_text(json.dumps({**described, "hidden": [7, 4]}))
    with pytest.raises(InputError, match=r"actuator_network\.safetensors: does not fit actuator_network\.json"):
        export_identified(tmp_path / "run", "newton")
    (tmp_path / "run" / "actuator_network.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        export_identified(tmp_path / "run", "newton")


def test_an_inertia_of_no_body_is_refused(tmp_path):
    identified_run(tmp_path / "run", write_arm(tmp_path / "arm"), "elbow.inertia.xx=2")
    with pytest.raises(InputError, match=r"link 'elbow': principal moments of inertia are .* which no body has"):
        export_identified(tmp_path / "run", "newton")


def test_a_robot_whose_declaration_is_gone_is_refused(tmp_path):
    model = identified_run(tmp_path / "run", write_arm(tmp_path / "arm"), "elbow.mass=2")
    assert model.robot is not None
    for path in (tmp_path / "arm").iterdir():
        path.unlink()
    assert export_identified(tmp_path / "run", "mjcf").left_out == ()  # the run carries it
    for path in (tmp_path / "run" / "robot").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"the declaration of its robot, .* is gone; valid: put it back there"):
        export_identified(tmp_path / "run", "newton")


def test_what_a_drive_does_is_wanted_and_what_it_does_not_is_not():
    drive = Drive(kind="pd", kp=5.0, kd=0.1, viscous=0.2, delay=0.01)
    identified = IdentifiedRobot("a run", None, Mechanism(links=()), drives={"a": drive}, free={"a.mass": 1.0})
    assert identified.required_quantities == [
        "a.mass",
        *(f"actuator.a.{name}" for name in ("delay", "kp", "kd", "viscous")),
    ]


def test_numbers_have_the_digits_that_they_need():
    assert [number(float(np.float32(0.1))), number(0.1), number(1 / 3), number(-2e-7)] == [
        "0.1", "0.1", "0.3333333333", "-2e-07",
    ]  # fmt: skip


def test_a_drive_that_holds_its_torque_is_reported_to_act_in_every_step(tmp_path):
    pd = Drive(kind="pd", kp=5.0, kd=0.1)
    drives = {"pan": pd, "lift": msgspec.structs.replace(pd, updates=1), "elbow": pd}
    model = put_behind_drives(declared_hybrid(write_arm(tmp_path / "arm")), drives)
    with pytest.warns(Notice, match="newton evaluates drives in every step, not `updates` times per frame: lift$"):
        export_identified(model, "newton", tmp_path / "out")
    remarks = export_identified(model, "mjcf", tmp_path / "mjcf").remarks
    assert remarks[0].startswith("to first order: lag and hold of controllers")
