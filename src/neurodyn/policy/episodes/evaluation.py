# SPDX-License-Identifier: Apache-2.0
"""Returns of policies in any number of dynamics, errors of models' returns, and figures for comparing policies."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.control.commands import CommandTally, of_commands
from neurodyn.control.resolve import ANALYTIC, is_declared, open_dynamics
from neurodyn.control.returns import EpisodeOutcomes, EpisodeTally, Returns, returns_in
from neurodyn.control.starts import Starts, task_ground
from neurodyn.core import artifacts
from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY, resolve_policy
from neurodyn.core.config import Record, read_record
from neurodyn.core.description.randomisation import RandomisedQuantity
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tracked
from neurodyn.core.provenance import __version__, files_checksum
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.core.verdict import Finding, as_verdict, combine_verdicts, doubts, of_failed, of_returns
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS
from neurodyn.evaluate.run_comparison import (
    Figure,
    FigureSeries,
    RunFigures,
    read_or_measure,
    run_settings,
    training_of,
)
from neurodyn.evaluate.run_figures import Say, print_line
from neurodyn.learn.manifest import DEFAULT_ALGORITHM
from neurodyn.learn.metrics import read_metrics
from neurodyn.nets.networks import weights_in
from neurodyn.policy.artifact import ActingPolicy, PolicyNetwork, acting, load_policy, task_of
from neurodyn.policy.requests import EPISODES, SEED, EvaluatePolicyRequest
from neurodyn.policy.trust.judges import Promise, promises_of
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.randomisation import Randomisation, open_randomisation, robust
from neurodyn.sim.draws import QuantityDraws
from neurodyn.tasks import Task

LEVEL = 0.95
"""Confidence level of the intervals."""
_DRAWS = 2000
_TINY = 1e-12


class RewardError(Record, frozen=True):
    """Difference of the returns in dynamics `b` from those in `a`.

    Attributes:
        a: The reference: the simulator if it is one of the two, else the first.
        b: The other dynamics.
        difference: Mean return in b less that in a.
        relative: Its magnitude, as a share of the return in a.
        by_episode: Mean magnitude of the difference between episodes of the same policy and start; None unless
            `paired`.
        interval: 95 % interval of `difference`, as a share of the return in a; None for a single episode.
        paired: Whether episodes start in the same states, those of the task. After windows of a log they do not, and
            the difference includes that between starts.
    """

    a: str
    b: str
    difference: float
    relative: float
    by_episode: float | None
    interval: tuple[float, float] | None = None
    paired: bool = True


def reward_errors(returns: dict[str, Sequence[Tensor]], logged: Collection[str] = ()) -> list[RewardError]:
    """Return the differences of returns between pairs of dynamics.

    Args:
        returns: By dynamics, the returns of each policy's episodes, shape [episodes], in the same order for all.
        logged: Dynamics in which episodes start after windows of a log.
    """
    values = {name: np.stack([one.double().numpy() for one in policies]) for name, policies in returns.items()}
    names = sorted(values, key=lambda name: name != ANALYTIC)
    return [
        _between(a, b, values[a], values[b], paired=a not in logged and b not in logged)
        for a, b in combinations(names, 2)
    ]


def _between(a: str, b: str, first: np.ndarray, second: np.ndarray, *, paired: bool) -> RewardError:
    difference = float(second.mean() - first.mean())
    return RewardError(
        a=a,
        b=b,
        difference=difference,
        relative=abs(difference) / max(abs(float(first.mean())), _TINY),
        by_episode=float(np.abs(second - first).mean()) if paired else None,
        interval=_interval(first, second, paired=paired) if first.size > 1 else None,
        paired=paired,
    )


def _interval(first_returns: np.ndarray, second_returns: np.ndarray, *, paired: bool) -> tuple[float, float]:
    """Bootstrap over policies and their episodes, the same in both dynamics if paired; shapes [policies, episodes]."""
    policies, episodes = first_returns.shape
    rng, differences = np.random.default_rng(0), np.empty(_DRAWS)
    for draw in range(_DRAWS):
        rows = rng.integers(policies, size=(policies, 1))
        columns = rng.integers(episodes, size=(policies, episodes))
        first = first_returns[rows, columns].mean()
        others = columns if paired else rng.integers(episodes, size=(policies, episodes))
        differences[draw] = (second_returns[rows, others].mean() - first) / max(abs(first), _TINY)
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


class PolicyEvaluation(Record, frozen=True):
    """Returns of one or several policies in several dynamics.

    Attributes:
        task: Name of the task.
        policy: Folder of the policy; several folders are joined.
        episodes: Number of episodes of each policy in each.
        seed: Seed of starts and commands.
        results: Returns in each; for several policies, their mean and range.
        reward_error: Difference between each two.
        ground: Requested ground; UNSET for the robot's default.
        randomise: Randomised quantities, as requested; UNSET for one robot.
        policies: Results by policy; empty for one policy.
        verdict: Whether models made from logs, or else the simulator, contradict the returns elsewhere
            (`core.verdict`).
        findings: The findings behind it that are not ok.
        promises: By policy, what its training promises by its judges (`policy.trust.judges`), if it had any.
        from_logs: Dynamics made from logs of the robot.
        caveats: By dynamics, their caveat if they have one (`Dynamics.caveat`).
    """

    task: str
    policy: str
    episodes: int
    seed: int
    results: list[Returns]
    reward_error: list[RewardError]
    ground: str | UnsetType = UNSET
    randomise: tuple[str, ...] | UnsetType = UNSET
    policies: tuple["PolicyEvaluation", ...] = ()
    verdict: str = "ok"
    findings: list[Finding] = msgspec.field(default_factory=list)
    promises: dict[str, Promise] = msgspec.field(default_factory=dict)
    from_logs: tuple[str, ...] = ()
    caveats: dict[str, str] = msgspec.field(default_factory=dict)


@torch.no_grad()
def play(
    policy: Callable[[Tensor], Tensor],
    task: Task,
    dynamics: Dynamics,
    starts: Starts,
    episodes: int = EPISODES,
    *,
    seed: int = SEED,
    penalty: float = 0.0,
    penalty_offset: float = 0.0,
    environment: Environment | None = None,
    draws: QuantityDraws | None = None,
    disturbed: Sequence[RandomisedQuantity] = (),
    watcher: Callable[[PolicyEnvironment, Tensor], None] | None = None,
) -> EpisodeOutcomes:
    """Run a policy without noise for one episode in each of `episodes` worlds, with a robot each under `draws`.

    Further arguments: see `PolicyEnvironment`; `penalty` enters `EpisodeOutcomes.penalised`. `watcher` is called before
    each frame with the worlds and the actions.

    Raises:
        InputError: Task and dynamics are incompatible.
    """
    world = PolicyEnvironment(
        task, dynamics, starts, episodes, seed=seed, penalty=penalty, penalty_offset=penalty_offset,
        environment=environment, draws=draws, disturbed=disturbed,
    )  # fmt: skip
    asked = draws is not None or bool(disturbed)  # errors of sensors alone are no randomisation
    robots = None if world.robots.numbers is None or not asked else world.robots.numbers.cpu().clone()
    tally, act, shows = EpisodeTally(task, episodes, world.device), acting(policy), getattr(policy, "privileged", ())
    if shows and shows != world.robots.names:
        raise InputError(
            f"policy observes randomised quantities: {', '.join(shows)}; valid: the --randomise of its training"
        )
    commands = CommandTally(task)
    for _ in tracked(range(task.frames)):
        commands.count(world.now, world.memory, tally.running)
        actions = act(world.seen, world.robots.seen["robot"]) if shows else act(world.seen)
        if watcher is not None:
            watcher(world, actions)
        _, seen, done, extras = world.step(actions)
        if isinstance(act, ActingPolicy):
            act.restart(done)
        goes_on = tally.count(
            extras["reward"], seen, extras["terms"], done=done, failed=~extras["time_outs"],
            implausible=extras["implausible"], succeeded=extras.get("succeeded"),
        )  # fmt: skip
        if not goes_on:
            break
    return replace(
        tally.outcome(), robots=robots, drawn=world.robots.names if asked else (), commands=commands.figures()
    )


@accepts_request(EvaluatePolicyRequest)
def evaluate(request: EvaluatePolicyRequest) -> PolicyEvaluation:
    """Measure the return of one or several policies in each of some dynamics.

    Raises:
        InputError: Policies or dynamics are missing or incompatible, a policy is named twice, or the ground is unknown.
    """
    folder, dynamics, starts, episodes, seed = (
        request.folder, request.dynamics, request.starts, request.episodes, request.seed,
    )  # fmt: skip
    if episodes < 1:
        raise InputError(f"--episodes is {episodes}; valid: at least 1")
    if starts is not None and set(dynamics) == {ANALYTIC}:
        raise InputError(
            f"--starts is {str(starts)!r}, but the simulator starts where the task says; valid with a model"
        )
    folders = names_of(folder)
    wanted, networks = _open_policies(folders, request.task)
    names = dict.fromkeys(dynamics or default_dynamics(folders))
    # Open all of them, which checks them, before the first episode.
    opened = {
        name: open_dynamics(
            wanted, name, device=request.device, starts=None if is_declared(name) else starts, drawn=True
        )
        for name in names
    }
    caveats = {name: resolved.dynamics.caveat for name, resolved in opened.items() if resolved.dynamics.caveat}
    drawn: dict[str, Randomisation] = {}
    for name, resolved in opened.items():
        drawn[name] = open_randomisation(request.randomise, resolved.dynamics, wanted)
        opened[name] = replace(resolved, dynamics=drawn[name].dynamics)
    grounds = {request.ground, *(one.ground for one in drawn.values())} - {None}
    if len(grounds) > 1:
        raise InputError(f"--ground and --randomise ground are {' and '.join(sorted(map(str, grounds)))}; valid: one")
    environment = task_ground(wanted, str(grounds.pop()), episodes, seed) if grounds else None
    logged = [name for name, resolved in opened.items() if resolved.log is not None]
    from_logs = tuple(name for name, resolved in opened.items() if resolved.dynamics.from_logs)
    outcomes: dict[str, list[EpisodeOutcomes]] = {}
    for name in tracked(tuple(opened)):
        resolved = opened[name]
        outcomes[name] = [
            play(
                network.to(resolved.dynamics.device), wanted, resolved.dynamics, resolved.starts(wanted, seed),
                episodes, seed=seed, environment=environment, draws=drawn[name].draws, disturbed=drawn[name].disturbed,
            )
            for network in tracked(networks, name)
        ]  # fmt: skip

    def part_of(which: slice) -> PolicyEvaluation:
        some = {name: some_outcomes[which] for name, some_outcomes in outcomes.items()}
        results = [robust(returns_in(name, some_outcomes), some_outcomes) for name, some_outcomes in some.items()]
        findings = _compare_with_truth(results, from_logs)
        return PolicyEvaluation(
            task=wanted.name,
            policy=", ".join(folders[which]),
            episodes=episodes,
            seed=seed,
            results=results,
            verdict=str(combine_verdicts(findings)),
            findings=findings,
            promises=promises_of(folders[which]),
            from_logs=from_logs,
            caveats=caveats,
            reward_error=reward_errors(
                {name: [one.returns for one in some_outcomes] for name, some_outcomes in some.items()}, logged
            ),
            ground=UNSET if request.ground is None else request.ground,
            randomise=request.randomise or UNSET,
            policies=tuple(part_of(slice(i, i + 1)) for i in range(len(folders))) if len(folders[which]) > 1 else (),
        )

    return part_of(slice(None))


def _compare_with_truth(results: list[Returns], from_logs: Collection[str]) -> list[Finding]:
    """Return whether the truth contradicts the models' returns, half of its episodes fail, or commands are ignored.

    The truth is a model made from logs of the robot or, without one, the declared simulator, which is no truth about a
    robot with logs.
    """
    declared = next((one for one in results if one.dynamics == ANALYTIC), None)
    truth, place_text = next((one for one in results if one.dynamics in from_logs), None), "in the simulator"
    if truth is None:
        if declared is None:
            return []
        findings = [of_returns(one.mean, declared.mean, "the simulator") for one in results if one is not declared]
        truth = declared
    else:
        place_text = f"in {truth.dynamics}, made from logs"
        models = [one for one in results if one.dynamics not in from_logs and not is_declared(one.dynamics)]
        findings = [of_returns(one.mean, truth.mean, f"{truth.dynamics}, made from logs,") for one in models]
    findings += of_commands({} if truth.commands is UNSET else truth.commands, f" {place_text}")
    findings.append(of_failed(truth.failed, f"fail {place_text}", "train longer", grade="warning"))
    return doubts(findings)


def _open_policies(folders: Sequence[str], task: str | None) -> tuple[Task, list[PolicyNetwork]]:
    """Return the common task of policies, and their networks.

    Raises:
        InputError: There are no policies, one is named twice, or they are of several tasks.
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
    return task_of(read[0][0], task, folders[0], drawn=True), [network for _, network in read]


def default_dynamics(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the simulator and the policies' training dynamics, if their folders name them.

    The training run of a packaged policy does not ship.
    """
    names = [ANALYTIC]
    for folder in folders:
        path = resolve_policy(folder) / "config.yaml"
        training_dynamics = read_record(path, "dynamics")["dynamics"] if path.is_file() else ANALYTIC
        if not folder.startswith(PRETRAINED_POLICY) or training_dynamics.startswith(PRETRAINED):
            names.append(training_dynamics)
    return tuple(names)


_STRONGEST = 4
"""Most influential quantities named."""


def policy_figures(
    policy: str | Path,
    *,
    dynamics: tuple[str, ...] = (),
    episodes: int = EPISODES,
    seed: int = SEED,
    say: Say = print_line,
    **asked: Any,
) -> RunFigures:
    """Measure a policy, or read an earlier measurement of the same kind.

    Args:
        policy: Folder of a policy, or "pretrained-policy:NAME".
        dynamics: Dynamics to evaluate in; none for the simulator alone, in which all policies of a task are comparable.
        episodes: Number of episodes in each.
        seed: Seed of starts and commands.
        say: Called before a measurement.
        asked: Further arguments of `evaluate`.

    Raises:
        InputError: There is no such policy, or it cannot act there.
    """
    folder, names = resolve_policy(policy), dynamics or (ANALYTIC,)
    question = {
        **asked, "dynamics": [(name, _checksum(name)) for name in names], "episodes": episodes, "seed": seed,
        "version": __version__,
        "model": files_checksum(folder, "policy.safetensors", "config.json", "config.yaml", "metrics.jsonl"),
    }  # fmt: skip

    def measure() -> RunFigures:
        say(f"playing {policy}")
        return _measure(str(policy), folder, names, episodes, seed, asked)

    own = not str(policy).startswith(PRETRAINED_POLICY)
    return read_or_measure(folder, question, measure, writable=own, name=str(policy))


def _measure(
    policy: str, folder: Path, names: tuple[str, ...], episodes: int, seed: int, asked: dict[str, Any]
) -> RunFigures:
    config, network = load_policy(policy)
    result = evaluate(policy, names, episodes=episodes, seed=seed, **asked)
    figures: dict[str, Figure] = {}
    for row in result.results:
        figures[f"Return in {row.dynamics}"] = Figure(value=row.mean, greater_is_better=True)
    for row in result.results:
        if row.worst_tenth is not UNSET:
            figures[f"Worst tenth in {row.dynamics}"] = Figure(value=row.worst_tenth, greater_is_better=True)
    for row in result.results:
        figures[f"Failed in {row.dynamics} [%]"] = Figure(value=100 * row.failed)
    for row in result.results:
        for entry in (row.sensitivity or [])[:_STRONGEST]:
            name = f"Rank correlation in {row.dynamics} with {entry.name}"
            figures[name] = Figure(value=entry.correlation, greater_is_better=True)
    settings, made_with = run_settings(folder)
    cost, _, trained = training_of(folder)
    ground = f", ground {asked['ground']}" if asked.get("ground") else ""
    ground += f", robots with {', '.join(asked['randomise'])}" if asked.get("randomise") else ""
    return RunFigures(
        run=policy, of=f"policies for {config.task} in {', '.join(names)}{ground}: {episodes} episodes, seed {seed}",
        kind=str(settings.get("algorithm", DEFAULT_ALGORITHM)), figures=figures, series=_series(folder),
        settings=settings, seed=made_with,
        cost=msgspec.structs.replace(
            cost, parameters=weights_in(network.parameters()), bytes=(folder / "policy.safetensors").stat().st_size
        ),
        verdict=str(combine_verdicts([as_verdict(result.verdict), trained])),
    )  # fmt: skip


def _series(folder: Path) -> dict[str, FigureSeries]:
    titles = {
        "return_training": "Return during training, where it is trained",
        "return_reference": "Return during training, in the reference",
    }
    series, lines = {}, [line for line in read_metrics(folder) if "frames" in line]
    for key, title in titles.items():
        points = [(float(line["frames"]), line[key]) for line in lines if line.get(key) is not None]
        if len(points) > 1:
            x, y = zip(*points, strict=True)
            series[title] = FigureSeries(x=list(x), y=list(y), x_label="frames", log=False)
    return series


def _checksum(dynamics: str) -> str:
    if dynamics in {ANALYTIC, *KINDS}:
        return ""
    return files_checksum(artifacts.resolve_run(dynamics), "model/*")
