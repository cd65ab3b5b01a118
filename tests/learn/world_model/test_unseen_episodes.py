# SPDX-License-Identifier: Apache-2.0
"""Calibration of world models of few runs: training episodes count that some members have not drawn."""

import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.learn.world_model.train import train_world_model
from neurodyn.learn.world_model.trainer import WorldValidation
from neurodyn.robots import Joint, Robot
from tests import worlds
from tests.learn.world_model.test_train import QUICK

SETTINGS = msgspec.structs.replace(QUICK, steps=150, validation_frames=10, keep="last")


def runs(seed: int, train: int, validation: int) -> Store:
    """Noisy runs, of which the validation ones are the first training ones once more."""
    store = worlds.make_store(train + validation, failures=False, noise=0.02, seed=seed)
    frames, table = np.array(store.frames), store.table.copy()
    length = int(table["length"][0]) + 1
    frames[train * length :] = frames[: validation * length]
    table["split"] = np.where(np.arange(train + validation) < train, Split.TRAIN, Split.VALIDATION)
    return dataclasses.replace(store, frames=frames, table=table)


def covered(model: WorldModel, store: Store) -> float:
    """Return the share of measurements within two standard deviations, over ten frames of validation runs."""
    return sum(WorldValidation(store, SETTINGS, torch.device("cpu")).measure(model).coverage.values()) / 2.0


@pytest.mark.trains
def test_bands_cover_motions_that_no_member_saw(tmp_path):
    joints = tuple(Joint(name=j.name, kind=j.kind, continuous=j.continuous) for j in worlds.SPEC.joints)
    robot = Robot(name="spring", asset="none.urdf", joints=joints, actuated={"slide": 1.0, "wheel": 1.0}, dt=0.02)
    few, fresh = runs(0, 5, 1), runs(1, 1, 30)
    train_world_model(robot, "spring", "spring.h5", few, tmp_path / "run", SETTINGS)
    model = WORLD_MODEL.load(tmp_path / "run")
    with_unseen = covered(model, fresh)
    WorldValidation(few, SETTINGS, torch.device("cpu")).calibrate(model)
    assert covered(model, fresh) < with_unseen
    assert with_unseen > 0.85
