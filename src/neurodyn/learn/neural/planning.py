# SPDX-License-Identifier: Apache-2.0
"""With which settings, and on which data, neural dynamics are trained: what `learn.train` asks of their kind."""

from collections.abc import Sequence
from functools import partial

from neurodyn.core.config import replaced
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.files.same_robot import require_same_simulator
from neurodyn.dynamics.neural.artifact import NEURAL
from neurodyn.learn.neural.settings import Settings, load_finetuning, load_settings
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.run_folder import Data, open_mixture
from neurodyn.robots import Robot, load
from neurodyn.robots.data import open_robot_data


def plan_training(
    robot: Robot,
    data: Data,
    *,
    size: str | Settings,
    net: str | None,
    base: str | None,
    shares: Sequence[float] | None,
    members: int | None,
) -> tuple[Settings, Mixture]:
    """Return settings and data of a training; arguments and errors are those of `learn.train.plan_training`."""
    mixture = open_mixture(data, shares, partial(open_robot_data, robot))
    for store in mixture.stores:
        require_data(robot, store)
        require_same_simulator(robot, store)
    log = any(store.header.source == "log" for store in mixture.stores)
    settings = size if isinstance(size, Settings) else load_settings(robot, size, net, log=log)
    changes = {name: value for name, value in (("base", base), ("members", members)) if value is not None}
    return replaced(settings, **changes), mixture


def plan_finetuning(
    run: str, data: Data, *, size: str | Settings, shares: Sequence[float] | None
) -> tuple[Settings, Mixture]:
    """Return settings and data of a fine-tuning; arguments and errors are those of `learn.train.plan_finetuning`."""
    config, _ = NEURAL.read(run)
    robot = load(config.robot)
    if isinstance(size, Settings):
        settings = replaced(size, net=config.net, members=config.members)
    else:
        settings = load_finetuning(size, config.net, robot, config.members)
    return settings, open_mixture(data, shares, partial(open_robot_data, robot))
