# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several rooms' tests share; built once a session."""

import gc
import os
import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
import warp as wp
import yaml

import neurodyn
from neurodyn.core.workers import FORWARD_ONLY
from neurodyn.data.store import Store
from neurodyn.learn.neural import settings as neural_settings
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import train
from neurodyn.nets.networks import NetConfig
from neurodyn.report import recording
from neurodyn.robots import Robot, load
from tests import plant

THREADS = int(os.environ.get("NEURODYN_TEST_THREADS", "1"))
"""Threads of torch: tests neither depend on the number of cores nor take them all."""

os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))  # of what tests start

# Kernels of Newton are compiled without adjoints, in a third of the time, and the same in what tests start.
os.environ.setdefault(FORWARD_ONLY, "1")
wp.config.enable_backward = False

# Python compiles the package once, not anew in each process of the tests and in each that they start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_HERE = Path(__file__).resolve().parent.parent
if Path(neurodyn.__file__).resolve().parents[2] != _HERE:
    pytest.exit(f"the neurodyn under test is {neurodyn.__file__}, not that of {_HERE}: install it with --editable", 4)

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


LONGEST = (
    "test_notebooks.py", "test_campaign.py", "control/robot/test_robot.py", "cli/test_demo.py", "test_examples.py",
    "evaluate/test_checks.py", "cli/test_moved_run.py", "cli/policy/test_log.py", "cli/test_ranks.py",
    "cli/test_generate.py", "cli/test_refusals.py", "identify/test_unmeasured.py", "cluster/test_sweep.py",
    "identify/test_go2.py", "multibody/constraints/test_couplings.py", "identify/test_elastic_links.py",
    "sim/test_scene.py", "cli/test_any_kind.py", "identify/test_odd_robots.py", "dynamics/test_artifact_export.py",
    "cluster/test_identify.py", "cli/policy/test_actions.py", "control/robot/test_sensed.py", "test_pretrained.py",
    "identify/test_adapt.py", "test_docs.py", "sim/test_contact_points.py", "learn/world_model/test_train.py",
    "interop/test_c_code.py", "dynamics/hybrid/test_declared.py", "multibody/constraints/test_shape_contacts.py",
    "identify/test_agreement.py", "test_cuda_compiles.py", "test_imports.py", "cli/test_verbs.py",
    "estimate/test_causal.py", "cli/test_go2_air.py", "cluster/test_workers.py",
    "policy/online_learning/test_robot.py", "identify/test_identify.py",
)  # fmt: skip
"""Files that take longest: in several processes they begin first, so that none is left alone at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist take files in the order of collection, not those with most tests first."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        place = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish():
    """Keep modules, which live as long as the process, out of the garbage that Python looks for again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """A test draws the same numbers whichever tests ran before it; its fixtures are made after this."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@pytest.fixture(autouse=True)
def no_pulse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Bars show what work says, not for how long a busy machine has taken so far."""
    if request.module.__name__ != "tests.cli.terminal.test_progress":
        monkeypatch.setattr("neurodyn.cli.terminal.console.ProgressBar._repeat", lambda self: None)


FEWER = {"batch": 64, "context": 16, "forecast": 8}
"""Most windows of a batch, and frames, of trainings with the general settings: in tests hundredths of their steps."""


@pytest.fixture(scope="session", autouse=True)
def brief_presets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neural trainings with settings that ship are short in tests; tests/learn/neural/test_settings.py reads all."""
    folder = tmp_path_factory.mktemp("presets")
    for path in neural_settings._GENERAL.glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        for phase in content.get("phases", ()) if path.stem != "finetune" else ():
            phase |= {name: min(most, phase[name]) for name, most in FEWER.items() if phase.get(name)}
        content |= {"validation_rollouts": 32} if "extends" not in content else {}
        (folder / path.name).write_text(yaml.safe_dump(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural_settings, "_GENERAL", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def brief_films() -> Iterator[None]:
    """Films of pages have 4 pictures a second; tests/report/test_recording.py makes whole ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "pictures", partial(recording.pictures, rate=4.0))
        yield


@pytest.fixture(scope="session")
def cartpole() -> Robot:
    return load("cartpole")


@pytest.fixture(scope="session")
def plant_store() -> Store:
    """60 episodes of 50 frames of the known plant."""
    return plant.make_store()


@pytest.fixture(scope="session")
def plant_file(plant_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plant") / "plant.h5"
    plant_store.write(path)
    return path


@pytest.fixture(scope="session")
def simulator_file(cartpole: Robot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 episodes of 25 frames of the declared cartpole, from Newton."""
    pytest.importorskip("newton")
    from neurodyn.sim.generation import generate

    path = tmp_path_factory.mktemp("teacher") / "cartpole.h5"
    generate(cartpole, transitions=1000, out=path, worlds=40, seed=3, frames=25)
    return path


@pytest.fixture(scope="session")
def quick() -> Settings:
    """A training of a few hundred steps: teacher forcing, then forecasts."""
    return Settings(
        net=NetConfig(kind="mlp", width=32, depth=2),
        phases=(Phase(share=0.5, rate=1e-2, batch=64), Phase(share=0.5, rate=3e-3, batch=64, forecast=4)),
        minutes=None,
        steps=300,
        validations=4,
        validation_rollouts=32,
        validation_frames=40,
    )


@pytest.fixture(scope="session")
def trained_run(
    cartpole: Robot, plant_store: Store, plant_file: Path, quick: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was trained on the plant."""
    run = tmp_path_factory.mktemp("trained") / "run"
    train(cartpole, "cartpole", str(plant_file), plant_store, run, quick)
    return run
