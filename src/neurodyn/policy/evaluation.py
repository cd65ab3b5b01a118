# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy evaluate`: saved policies in any number of dynamics."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from neurodyn.control.grounds import task_ground
from neurodyn.control.resolve import ANALYTIC, is_declared, open_dynamics
from neurodyn.control.returns import Outcome, Returns, returns_in
from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY, resolve_policy
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tracked
from neurodyn.core.verdict import Verdict, of_failed, of_returns, together
from neurodyn.policy.artifact import load_policy, task_of
from neurodyn.policy.evaluate import EPISODES, SEED, PolicyEvaluation, play
from neurodyn.policy.network import PolicyNetwork
from neurodyn.policy.reward_error import reward_errors
from neurodyn.tasks import Task


def evaluate_policy(
    folder: str | Path | Sequence[str | Path],
    dynamics: tuple[str, ...] = (),
    *,
    episodes: int = EPISODES,
    seed: int = SEED,
    starts: str | None = None,
    ground: str | None = None,
    device: str = "cpu",
    task: str | None = None,
) -> PolicyEvaluation:
    """Measure the return of policies in each of some dynamics.

    Args:
        folder: Folder of a policy, or "pretrained-policy:NAME"; or several, of one task, as those of several seeds.
        dynamics: As the user calls them; none for the simulator, and what the policies were trained in.
        episodes: Number of episodes of each policy in each.
        seed: Seed of starts and commands.
        starts: Log after whose windows episodes start in models of logs, or "task" for starts that the task draws; None
            for the task's where it can draw them, and each model's own log where the model reads a history.
        ground: Name of one of the robot's grounds, or a file with a scene (`control.grounds`); None for the default.
        device: Torch device.
        task: FILE.py:CLASS, for policies of a task of your own; None for the task that the policies name.

    Raises:
        InputError: Policies or dynamics are missing or do not fit together, a policy is named twice, or there is no
            such ground.
    """
    if episodes < 1:
        raise InputError(f"--episodes is {episodes}; valid: at least 1")
    if starts is not None and set(dynamics) == {ANALYTIC}:
        raise InputError(
            f"--starts is {str(starts)!r}, but the simulator starts where the task says; valid with a model"
        )
    folders = [str(one) for one in ([folder] if isinstance(folder, (str, Path)) else folder)]
    wanted, networks = _opened(folders, task)
    environment = None if ground is None else task_ground(wanted, ground, episodes, seed)
    names = dict.fromkeys(dynamics or default_dynamics(folders))
    # All are opened, and so checked, before the first episode is played.
    opened = {
        name: open_dynamics(wanted, name, device=device, starts=None if is_declared(name) else starts, drawn=True)
        for name in names
    }
    logged = [name for name, where in opened.items() if where.log is not None]
    outcomes: dict[str, list[Outcome]] = {}
    for name in tracked(tuple(opened)):
        where = opened[name]
        outcomes[name] = [
            play(
                network.to(where.dynamics.device), wanted, where.dynamics, where.starts(wanted, seed), episodes,
                seed=seed, environment=environment,
            )
            for network in tracked(networks, name)
        ]  # fmt: skip

    def said(which: slice) -> PolicyEvaluation:
        some = {name: found[which] for name, found in outcomes.items()}
        return PolicyEvaluation(
            task=wanted.name,
            policy=", ".join(folders[which]),
            episodes=episodes,
            seed=seed,
            results=[returns_in(name, found) for name, found in some.items()],
            verdict=str(_judged([returns_in(name, found) for name, found in some.items()])),
            reward_error=reward_errors({name: [one.returns for one in found] for name, found in some.items()}, logged),
            ground=UNSET if ground is None else ground,
            policies=tuple(said(slice(i, i + 1)) for i in range(len(folders))) if len(folders[which]) > 1 else (),
        )

    return said(slice(None))


def _judged(results: list[Returns]) -> Verdict:
    """Return whether the simulator contradicts what models say, or every second episode fails in it."""
    real = next((one for one in results if one.dynamics == ANALYTIC), None)
    if real is None:
        return Verdict()
    found = [of_returns(one.mean, real.mean, "the simulator") for one in results if one is not real]
    found.append(of_failed(real.failed, "fail in the simulator", "train longer", grade="warning"))
    return together(found)


def _opened(folders: Sequence[str], task: str | None) -> tuple[Task, list[PolicyNetwork]]:
    """Return the task of some policies, and their networks.

    Raises:
        InputError: There are none, one is named twice, or they are of several tasks.
    """
    if not folders:
        raise InputError("no policy is given; valid: the folder of at least one")
    for folder in folders:
        if folders.count(folder) > 1:
            raise InputError(f"{folder}: is named twice; valid: each policy once")
    read = [load_policy(folder) for folder in folders]
    first = read[0][0].task
    for folder, (config, _) in zip(folders, read, strict=True):
        if config.task != first:
            raise InputError(f"{folder}: policy for {config.task}; valid beside {folders[0]}: policies for {first}")
    return task_of(read[0][0], task, folders[0]), [network for _, network in read]


def default_dynamics(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the simulator, and what policies were trained in, where their folders say so.

    A run that a policy of the package was trained in does not ship.
    """
    names = [ANALYTIC]
    for folder in folders:
        path = resolve_policy(folder) / "config.yaml"
        where = read_plain(path)["dynamics"] if path.is_file() else ANALYTIC
        if not folder.startswith(PRETRAINED_POLICY) or where.startswith(PRETRAINED):
            names.append(where)
    return tuple(names)
