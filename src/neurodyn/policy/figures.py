# SPDX-License-Identifier: Apache-2.0
"""What policies are compared by: returns in the same dynamics, what their training took, and how they were made."""

from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from neurodyn.control.resolve import ANALYTIC
from neurodyn.core import artifacts
from neurodyn.core.artifacts import PRETRAINED_POLICY, resolve_policy
from neurodyn.core.provenance import __version__, of_files
from neurodyn.core.verdict import as_verdict, together
from neurodyn.dynamics.kinds import KINDS
from neurodyn.evaluate.run_comparison import Figure, FigureSeries, RunFigures, kept, run_settings, training_of
from neurodyn.evaluate.run_figures import Say, said
from neurodyn.learn.manifest import DEFAULT_ALGORITHM
from neurodyn.learn.metrics import read_metrics
from neurodyn.nets.networks import weights_in
from neurodyn.policy.artifact import load_policy
from neurodyn.policy.evaluation import EPISODES, SEED, evaluate_policy

_STRONGEST = 4
"""Quantities that are named of those that the return depends on."""


def policy_figures(
    policy: str | Path,
    *,
    dynamics: tuple[str, ...] = (),
    episodes: int = EPISODES,
    seed: int = SEED,
    say: Say = said,
    **asked: Any,
) -> RunFigures:
    """Measure a policy, or read an earlier measurement of the same kind.

    Args:
        policy: Folder of a policy, or "pretrained-policy:NAME".
        dynamics: Where it acts; none for the simulator alone, in which all policies of a task can be compared.
        episodes: Number of episodes in each.
        seed: Seed of starts and commands.
        say: Called before a measurement.
        asked: Further arguments of `evaluate_policy`.

    Raises:
        InputError: There is no such policy, or it cannot act there.
    """
    folder, where = resolve_policy(policy), dynamics or (ANALYTIC,)
    question = {
        **asked, "dynamics": [(name, _checksum(name)) for name in where], "episodes": episodes, "seed": seed,
        "version": __version__,
        "model": of_files(folder, "policy.safetensors", "config.json", "config.yaml", "metrics.jsonl"),
    }  # fmt: skip

    def measure() -> RunFigures:
        say(f"playing {policy}")
        return _measured(str(policy), folder, where, episodes, seed, asked)

    own = not str(policy).startswith(PRETRAINED_POLICY)
    return kept(folder, question, measure, writable=own, name=str(policy))


def _measured(
    policy: str, folder: Path, where: tuple[str, ...], episodes: int, seed: int, asked: dict[str, Any]
) -> RunFigures:
    config, network = load_policy(policy)
    result = evaluate_policy(policy, where, episodes=episodes, seed=seed, **asked)
    figures: dict[str, Figure] = {}
    for row in result.results:
        figures[f"Return in {row.dynamics}"] = Figure(value=row.mean, greater_is_better=True)
    for row in result.results:
        if row.worst_tenth is not UNSET:
            figures[f"Worst tenth in {row.dynamics}"] = Figure(value=row.worst_tenth, greater_is_better=True)
    for row in result.results:
        figures[f"Failed in {row.dynamics} [%]"] = Figure(value=100 * row.failed)
    for row in result.results:
        for one in (row.sensitivity or [])[:_STRONGEST]:
            name = f"Rank correlation in {row.dynamics} with {one.name}"
            figures[name] = Figure(value=one.correlation, greater_is_better=True)
    settings, made_with = run_settings(folder)
    cost, _, trained = training_of(folder)
    ground = f", ground {asked['ground']}" if asked.get("ground") else ""
    ground += f", robots with {', '.join(asked['randomise'])}" if asked.get("randomise") else ""
    return RunFigures(
        run=policy, of=f"policies for {config.task} in {', '.join(where)}{ground}: {episodes} episodes, seed {seed}",
        kind=str(settings.get("algorithm", DEFAULT_ALGORITHM)), figures=figures, series=_series(folder),
        settings=settings, seed=made_with,
        cost=replace(
            cost, parameters=weights_in(network.parameters()), bytes=(folder / "policy.safetensors").stat().st_size
        ),
        verdict=str(together([as_verdict(result.verdict), trained])),
    )  # fmt: skip


def _series(folder: Path) -> dict[str, FigureSeries]:
    """Return returns during training, over frames."""
    titles = {
        "return_training": "Return during training, where it is trained",
        "return_reference": "Return during training, in the reference",
    }
    found, lines = {}, [line for line in read_metrics(folder) if "frames" in line]
    for key, title in titles.items():
        points = [(float(line["frames"]), line[key]) for line in lines if line.get(key) is not None]
        if len(points) > 1:
            x, y = zip(*points, strict=True)
            found[title] = FigureSeries(x=list(x), y=list(y), x_label="frames", log=False)
    return found


def _checksum(dynamics: str) -> str:
    """Return the checksum of a model; empty for a simulator."""
    if dynamics in {ANALYTIC, *KINDS}:
        return ""
    return of_files(artifacts.resolve_run(dynamics), "model/*")
