# SPDX-License-Identifier: Apache-2.0
"""`neurodyn demo`: from nothing to a trained model and a report, in one of three ways.

Every stage leaves its result in the folder and is skipped where that is already there, so that an interrupted demo goes
on where it stopped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neurodyn.core.interruption import Interrupted

_BUDGET = {"minutes": 2.5, "transitions": 1_000_000, "rollouts": 512}


def demo(
    *,
    world_model: bool = False,
    policy: bool = False,
    out: Path | None = None,
    minutes: float | None = None,
    transitions: int | None = None,
    rollouts: int | None = None,
    seed: int = 0,
) -> None:
    """Generate data, train a neural cartpole, measure it beside Newton's solver, and write a report.

    Takes about 5 minutes; --world-model and --policy take about one each.

    Args:
        world_model: Instead, learn a quadruped from the walks that ship with the package, without a simulator.
        policy: Instead, learn to swing up the cartpole inside a network, and meet the simulator afterwards.
        out: Folder for what is made; an interrupted demo in it goes on where it stopped. By default demo,
            demo-world-model or demo-policy.
        minutes: Time budget of the neural cartpole's training; by default 2.5.
        transitions: Transitions of its training data; by default a million.
        rollouts: Roll-outs of its evaluation; by default 512.
        seed: Seed of data and training.

    Example:
        neurodyn demo
        neurodyn demo --world-model
    """
    from neurodyn.core.errors import InputError

    budget = {"minutes": minutes, "transitions": transitions, "rollouts": rollouts}
    given = {name: value for name, value in budget.items() if value is not None}
    if world_model and policy:
        raise InputError("--world-model and --policy are two demos; give one of them")
    if given and (world_model or policy):
        raise InputError(f"--{next(iter(given))} is for the neural cartpole; valid with the other demos: --out, --seed")
    if seed < 0:
        raise InputError(f"--seed is {seed}; valid: at least 0")
    if world_model:
        from neurodyn.cli.demos.world_model import show_world_model

        with _alone(out := out or Path("demo-world-model")):
            show_world_model(out, seed)
    elif policy:
        from neurodyn.cli.demos.policy import show_policy

        with _alone(out := out or Path("demo-policy")):
            show_policy(out, seed)
    else:
        from neurodyn.cli.demos.cartpole import show_cartpole

        with _alone(out := out or Path("demo")):
            show_cartpole(out, **(_BUDGET | given), seed=seed)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Be the only demo in a folder, and say how an interrupted one goes on: by itself."""
    from neurodyn.core.locks import exclusive

    try:
        with exclusive(out):
            yield
    except KeyboardInterrupt as stop:
        raise Interrupted(f"{out}: interrupted; the same command goes on", getattr(stop, "code", 130)) from None
