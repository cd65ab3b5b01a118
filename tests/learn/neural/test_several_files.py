# SPDX-License-Identifier: Apache-2.0
"""Training on several files: every window feels the ground of its own file, and a stopped run resumes."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.core.config import to_yaml
from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, build_model
from neurodyn.learn import train
from neurodyn.learn.neural import trainer
from neurodyn.learn.neural.settings import Settings
from neurodyn.learn.neural.train import read_run_config
from neurodyn.learn.neural.trainer import LossScale, NeuralLearner
from tests import plant
from tests.learn.callbacks import StopAt, Stopped

POSE = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
SPEC = StateSpec(robot="ball", joints=(JointSpec(name="root", kind="free"),), controls=(), dt=0.02)
LAYOUT = ContactPointLayout(
    joints=(ChainJoint(name="root", kind="free", parent=-1, parent_frame=POSE, child_frame=POSE, axis=(0, 0, 0)),),
    contact_points=(ContactPoint(name="ball/0", joint=0, point=(0.0, 0.0, 0.0), radius=0.1),),
)
FLOOR, TABLE = Scene(shapes=(Plane(),)), Scene(shapes=(Plane(), Box(half=(5.0, 5.0, 0.5), position=(0.0, 0.0, 0.1))))
TOP = {FLOOR: 0.0, TABLE: 0.6}


def ball(scene: Scene, lift: float, episodes: int = 20, frames: int = 6) -> Store:
    """A ball that rests .2 m above the ground, which lies at another height in each episode."""
    rng = np.random.default_rng(0)
    heights = rng.uniform(-1, 1, episodes).astype(np.float32) + lift
    rows = np.zeros((episodes, frames + 1, SPEC.nq + SPEC.nv), np.float32)
    rows[:, :, 2] = (heights + TOP[scene] + 0.2)[:, None]
    rows[:, :, 6] = 1.0
    ground = np.tile(np.float32(POSE), (episodes, 1))
    ground[:, 2] = heights
    split = np.where(np.arange(episodes) < episodes - 3, Split.TRAIN, Split.VALIDATION)
    header = StoreHeader(spec=SPEC, source="log", scene=scene, contact_points=LAYOUT)
    return Store(header, rows.reshape(-1, rows.shape[2]), episode_table([frames] * episodes, split=split), ground)


def test_the_contact_inputs_of_each_window_are_those_of_its_own_file(quick: Settings, tmp_path: Path, monkeypatch):
    mixture = Mixture.of([ball(FLOOR, 0.0), ball(TABLE, 3.0)], [0.25, 0.75])
    torch.manual_seed(0)
    motion = torch.randn(50, SPEC.nv)
    encoding = fit_encoding(SPEC, motion, SPEC.dt * motion, motion, layout=LAYOUT, margin=0.5)
    config = ModelConfig(kind="neural", net=quick.net, encoding=encoding.config, robot="ball")
    model = build_model(config, ModelSpec(state=SPEC, fingerprint=None, contact_points=LAYOUT))
    seen = []
    monkeypatch.setattr(trainer, "training_loss", lambda model, parts, phase, scale: seen.append(parts))
    learner = NeuralLearner(tmp_path, model, mixture, quick, LossScale(torch.ones(6), torch.ones(6)))
    learner.start_phase(0)
    learner.draw()
    learner.loss()
    sizes = []
    expected = None
    for part, store in zip(seen[0], mixture.stores, strict=True):
        batch, environment = part.batch, part.environment
        assert environment.ground.scene == store.header.scene
        base = model.encoding.predict_base(batch.q[:, 0], batch.qd[:, 0], batch.control[:, 0], environment)
        inputs = model.encoding.encode(base, batch.control[:, 0], environment)[:, -model.encoding.contact.width :]
        assert inputs.abs().max() > 0
        # All windows are as high above the ground of their own file, and that is all a contact point reads.
        expected = inputs[:1] if expected is None else expected
        torch.testing.assert_close(inputs, expected.expand_as(inputs), rtol=1e-4, atol=1e-5)
        sizes.append(len(inputs))
    assert sizes == [16, 48]


@pytest.fixture(scope="module")
def files(plant_store: Store, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The plant, in two files that differ."""
    folder = tmp_path_factory.mktemp("several")
    plant_store.write(folder / "a.h5")
    plant.make_store(seed=77).write(folder / "b.h5")
    return [str(folder / "a.h5"), str(folder / "b.h5")]


@pytest.fixture(scope="module")
def size(quick: Settings, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A settings file of a quick training."""
    path = tmp_path_factory.mktemp("settings") / "quick.yaml"
    path.write_text(to_yaml(msgspec.structs.replace(quick, validations=2)))
    return str(path)


def test_a_run_on_two_files_says_so_resumes_bitwise_and_knows_its_data(files: list[str], size: str, tmp_path: Path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    given = {"size": size, "steps": 24, "seed": 3, "shares": [0.8, 0.2]}
    train("cartpole", files, whole, **given)
    record = read_run_config(whole)
    assert record.data == tuple(files)
    assert record.shares == (0.8, 0.2)
    with pytest.raises(Stopped):
        train("cartpole", files, stopped, callbacks=[StopAt(10)], **given)
    with pytest.raises(InputError, match="--resume needs the shares"):
        train("cartpole", files, stopped, resume=True, **(given | {"shares": [0.5, 0.5]}))
    with pytest.raises(InputError, match="--resume needs the data that the run was started with"):
        train("cartpole", [files[1], files[0]], stopped, resume=True, **given)
    train("cartpole", files, stopped, resume=True, **given)
    one, other = ((path / "model" / "model.safetensors").read_bytes() for path in (whole, stopped))
    assert one == other
    reach = NEURAL.load(whole).training_range
    assert reach is not None
    stores = [Store.open(file) for file in files]
    most = max(float(store.qd[:, 0].max()) for store in stores)
    assert reach.qd[0][1] <= most


def test_bad_input_is_one_line(files: list[str], plant_store: Store, tmp_path: Path, capsys):
    spec = plant_store.header.spec
    slower = dataclasses.replace(
        plant_store, header=msgspec.structs.replace(plant_store.header, spec=msgspec.structs.replace(spec, dt=0.05))
    )
    slower.write(tmp_path / "slower.h5")
    out = ["--out", str(tmp_path / "run")]
    for arguments, message in (
        (
            ["--data", files[0], str(tmp_path / "slower.h5")],
            "slower.h5: holds other data of 'cartpole': dt is 0.05 s instead",
        ),
        (["--data", *files, "--shares", "0.5"], "shares are 0.5, but there are 2 data sets"),
        (["--data", *files, "--shares", "0.5", "0.9"], "which sum to 1.4; valid: numbers above 0 that sum to 1"),
        (["--data", files[0], str(tmp_path / "none.h5")], "none.h5: no such file"),
    ):
        assert run(["train", "cartpole", *arguments, *out]) == 2
        complaint = capsys.readouterr().err.strip()
        assert message in complaint
        assert "\n" not in complaint
    assert not (tmp_path / "run").exists()


def test_the_command_line_takes_several_files(files: list[str], size: str, tmp_path: Path):
    out = tmp_path / "run"
    given = ["--data", *files, "--shares", ".7", ".3", "--size", size, "--steps", "5"]
    assert run(["train", "cartpole", *given, "--out", str(out)]) == 0
    assert read_run_config(out).shares == (0.7, 0.3)
    adapted = tmp_path / "adapted"
    assert run(["finetune", str(out), "--data", *files, "--out", str(adapted), "--steps", "3"]) == 0
    assert read_run_config(adapted).data == tuple(files)
