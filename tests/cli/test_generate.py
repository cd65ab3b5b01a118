# SPDX-License-Identifier: Apache-2.0
"""`neurodyn generate` writes the file and says in one line what is in it."""

import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from neurodyn.cli.data import generate
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.robots import ROBOTS

pytest.importorskip("newton", reason="the extra `sim` is not installed")


def test_last_line_says_how_much_and_where(tmp_path, capsys):
    path = tmp_path / "data.h5"
    generate("cartpole", 1000, path, worlds=4)
    line = capsys.readouterr().out.strip().splitlines()[-1]
    assert line.startswith("1,000 transitions in 10 trajectories (ended early: 0 not finite, 0 out of range; empty: 0)")
    assert "transitions per CPU-second" in line
    assert line.endswith(str(path))
    assert Store.open(path).header.robot == "cartpole"


def test_own_robot_by_path(tmp_path):
    robot = f"{__file__.rsplit('/', 2)[0]}/sim/assets/arm"
    generate(robot, 200, tmp_path / "data.h5", worlds=2)
    assert Store.open(tmp_path / "data.h5").header.spec.q_names == ("rail", "swing")


def test_unknown_robot_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="unknown robot"):
        generate("nosuch", 1000, tmp_path / "data.h5")
    assert list(tmp_path.iterdir()) == []


def test_contact_points_and_inputs_are_told_before_data_are_made(tmp_path, capsys):
    generate("pendulum", 100, tmp_path / "data.h5", worlds=1)
    assert "4 contact points, 85 network inputs" in capsys.readouterr().out


@pytest.mark.slow
def test_what_left_plausible_bounds_is_explained(tmp_path, capsys, cartpole):
    generate("anymal-c", 3200, tmp_path / "data.h5", worlds=32, passive_fraction=0.0)
    out = capsys.readouterr().out
    assert "trajectories end where they leave plausible bounds: qd." in out
    assert "rad/s) in" in out


def test_ctrl_c_keeps_what_is_simulated_and_names_the_command_that_goes_on(tmp_path: Path):
    shutil.copytree(ROBOTS["cartpole"].parent, tmp_path / "cart")
    declaration = tmp_path / "cart/robot.yaml"
    plain = yaml.safe_load(declaration.read_text()) | {"simulator": {"solver": "mujoco-c"}}  # nothing to compile
    declaration.write_text(yaml.safe_dump(plain))
    command = ["generate", "./cart", "--transitions", "50000000", "--out", "data.h5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "neurodyn", *command], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    part = tmp_path / "data.h5.part"
    until = time.monotonic() + 120.0
    while not (part.exists() and part.stat().st_size > 2_000_000):
        assert time.monotonic() < until
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 130
    again = f"neurodyn {shlex.join(command)} --resume"
    assert said[-1] == f"neurodyn: interrupted; what was finished is kept; `{again}` goes on"
    assert not (tmp_path / "data.h5").exists()
    assert part.exists()
