# SPDX-License-Identifier: Apache-2.0
"""Our trackers inside rsl_rl: its own Logger calls our writer."""

from dataclasses import dataclass

import pytest
import torch
from rsl_rl.utils.logger import Logger

from neurodyn.core.errors import InputError
from neurodyn.learn import TRACKERS, Tracker, read_metrics
from neurodyn.policy import TrackerWriter


class Own(Tracker):
    calls: list[tuple] = []

    def describe(self, config, manifest):
        self.calls.append(("config", config))

    def keep_model(self, files, step):
        self.calls.append(("model", [path.name for path in files], step))

    def close(self, failed):
        self.calls.append(("closed", failed))


@dataclass
class World:
    gravity: tuple[float, ...] = (0.0, 0.0, -9.81)


def test_the_runner_of_rsl_rl_writes_our_metrics_and_tracker(tmp_path):
    Own.calls = []
    TRACKERS.add("own", Own)
    settings = {"logger": {"class_name": "neurodyn.policy:TrackerWriter", "logger": "own"}, "num_steps_per_env": 2,
                "algorithm": {"rate": 1e-3, "schedule": abs, "rnd_cfg": None}}  # fmt: skip
    try:
        logger = Logger(str(tmp_path), settings, World(), 2, False, 1, 0, "cpu")
        logger.init_logging_writer()
        for iteration in range(2):
            extras = {"log": {"/reward/effort": torch.tensor(-0.5)}}
            logger.process_env_step(torch.tensor([1.0, 2.0]), torch.tensor([1, 0]), extras)
            logger.log(iteration, 0, 2, 0.1, 0.1, {"value": 0.25}, 1e-3, torch.tensor([0.5]), None)
        (tmp_path / "model_1.pt").write_bytes(b"weights")
        logger.save_model(str(tmp_path / "model_1.pt"), 1)
        logger.stop_logging_writer()
    finally:
        TRACKERS.remove("own")
    first, second = read_metrics(tmp_path)
    assert (first["step"], second["step"]) == (0, 1)
    assert first["Loss/value"] == 0.25
    assert first["/reward/effort"] == -0.5
    assert first["Train/mean_reward"] == 1.0
    assert "Train/mean_reward/time" not in second
    config = Own.calls[0][1]
    assert config["environment"] == {"gravity": [0.0, 0.0, -9.81]}
    assert config["settings"]["algorithm"]["rate"] == 1e-3
    assert isinstance(config["settings"]["algorithm"]["schedule"], str)
    assert Own.calls[1:] == [("model", ["model_1.pt"], 1), ("closed", False)]


def test_an_unknown_tracker_is_refused(tmp_path):
    with pytest.raises(InputError, match="unknown logger 'nothing'"):
        TrackerWriter(str(tmp_path / "run"), logger="nothing")
    assert not (tmp_path / "run").exists()
