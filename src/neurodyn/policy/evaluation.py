# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy evaluate`: a saved policy in any number of dynamics."""

from pathlib import Path

from neurodyn.core.artifacts import resolve_policy
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.policy.artifact import load_policy
from neurodyn.policy.evaluate import EPISODES, SEED, Outcome, PolicyEvaluation, play, reward_errors
from neurodyn.policy.resolve import ANALYTIC, open_dynamics
from neurodyn.policy.train import PolicyRecord
from neurodyn.tasks import load


def evaluate_policy(
    folder: str | Path,
    dynamics: tuple[str, ...] = (),
    *,
    episodes: int = EPISODES,
    seed: int = SEED,
    starts: str | None = None,
    device: str = "cpu",
) -> PolicyEvaluation:
    """Measure the return of a policy in each of some dynamics.

    Args:
        folder: Folder of the policy, or "pretrained-policy:NAME".
        dynamics: As the user calls them; none for the simulator, and what the policy was trained in.
        episodes: Number of episodes in each.
        seed: Seed of starts and commands.
        starts: Log after whose windows episodes start in models of logs; None for each model's own.
        device: Torch device.

    Raises:
        InputError: Policy or dynamics are missing or do not fit together.
    """
    if episodes < 1:
        raise InputError(f"--episodes is {episodes}; valid: at least 1")
    config, network = load_policy(folder)
    task = load(config.task)
    outcomes: dict[str, Outcome] = {}
    for name in dict.fromkeys(dynamics or _default(resolve_policy(folder))):
        log = None if name == ANALYTIC else starts
        where = open_dynamics(task, name, device=device, starts=log)
        policy = network.to(where.dynamics.device)
        outcomes[name] = play(policy, task, where.dynamics, where.starts(task, seed), episodes, seed=seed)
    return PolicyEvaluation(
        task=config.task,
        policy=str(folder),
        episodes=episodes,
        seed=seed,
        results=[outcome.returns_in(name) for name, outcome in outcomes.items()],
        reward_error=reward_errors(outcomes),
    )


def _default(folder: Path) -> tuple[str, ...]:
    path = folder / "config.yaml"
    return (ANALYTIC, read_config(path, PolicyRecord).dynamics) if path.is_file() else (ANALYTIC,)
