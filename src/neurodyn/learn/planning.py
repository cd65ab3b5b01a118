# SPDX-License-Identifier: Apache-2.0
"""With which settings, and on which data, models of each kind are trained.

What `learn.train` asks before a training begins.
"""

from collections.abc import Sequence
from functools import partial

from neurodyn.core.config import replaced
from neurodyn.core.errors import InputError
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.learn.neural.settings import Settings, load_finetuning, load_settings
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.run_folder import Data, open_mixture
from neurodyn.learn.world_model.settings import WorldSettings, load_world_finetuning, load_world_settings
from neurodyn.learn.world_model.train import require_log
from neurodyn.robots import Robot, load
from neurodyn.robots.data import open_measured_data, open_robot_data


def plan_neural_training(
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


def plan_neural_finetuning(
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


def plan_world_model_training(
    robot: Robot,
    data: Data,
    *,
    size: str | WorldSettings,
    net: str | None,
    base: str | None,
    shares: Sequence[float] | None,
    members: int | None,
) -> tuple[WorldSettings, Mixture]:
    """Return settings and data of a training; arguments are those of `learn.train.plan_training`.

    Raises:
        InputError: As there; or a network is asked for, which is part of a world model's settings, or a base.
    """
    if base is not None:
        raise InputError("--base is for --kind neural; a world model learns from logs alone")
    if net is not None:
        raise InputError("--net is for --kind neural; the network of a world model is part of its settings (--size)")
    mixture = open_mixture(data, shares, partial(open_measured_data, robot))
    for store in mixture.stores:
        require_log(robot, store)
    settings = size if isinstance(size, WorldSettings) else load_world_settings(robot, size)
    if members is not None:
        settings = replaced(settings, net=replaced(settings.net, members=members))
    return settings, mixture


def plan_world_model_finetuning(
    run: str, data: Data, *, size: str | WorldSettings, shares: Sequence[float] | None
) -> tuple[WorldSettings, Mixture]:
    """Return settings and data of a fine-tuning; arguments and errors are those of `learn.train.plan_finetuning`."""
    config, known = WORLD_MODEL.read(run)
    if isinstance(size, WorldSettings):
        settings = replaced(size, net=config.net, context=known.state.context)
    else:
        settings = load_world_finetuning(size, config.net, known.state.context)
    return settings, open_mixture(data, shares, partial(open_measured_data, load(config.robot)))
