# SPDX-License-Identifier: Apache-2.0
"""POLICY/report.html: returns in the training dynamics beside a reference, with animations of each.

`write_gap` writes the page of two policies of a robot, before and after its model was adapted to its logs.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from neurodyn.control.resolve import ANALYTIC, is_declared
from neurodyn.core.artifacts import write_text
from neurodyn.core.config import Record
from neurodyn.core.progress import stage, tracked
from neurodyn.core.verdict import Verdict
from neurodyn.data.store import Store
from neurodyn.identify.ladder.forecasts import read_forecasts
from neurodyn.identify.result import IdentificationFigures
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.episodes.evaluation import LEVEL, PolicyEvaluation, Returns
from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
from neurodyn.policy.episodes.logs import log_policies
from neurodyn.policy.episodes.play import record_policy
from neurodyn.policy.trust.judges import CONFIDENCE
from neurodyn.report.commands import commands_table
from neurodyn.report.identification import evidence
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import (
    Table,
    cards,
    code,
    facts,
    figure,
    fold,
    grid,
    header,
    page,
    paragraph,
    section,
    sentence_list,
    verdict_box,
)
from neurodyn.report.plots import PREDICTED, QUIET, SECOND, THIRD, TRUTH, PlotCurve, plot
from neurodyn.report.recording import Recording, film_of
from neurodyn.report.recording_files import DRAWN, drawn_motions
from neurodyn.report.sentences import sentences
from neurodyn.robots import load as load_robot
from neurodyn.tasks import load as load_task

SECONDS = 6.0
"""Length of an animation on the page [s]."""

_LATE = 4
"""Divisor of the number of updates: the last 1/4 count as late."""


def write_policy_report(
    folder: Path, result: PolicyEvaluation, *, starts: str | None = None, task: str | None = None
) -> Path:
    """Write the page of an evaluated policy, and return its path; for `starts` and `task` see `record_policy`.

    Raises:
        InputError: The page cannot be written.
    """
    path = folder / "report.html"
    write_text(path, render_policy_report(folder, result, moving(folder, result, starts, task)))
    return path


def render_policy_report(folder: Path, result: PolicyEvaluation, motion: Sequence[str] = ()) -> str:
    """Return the page as HTML; `motion` holds animations, or the reasons for having none."""
    names = ", ".join(_name_with_remarks(row.dynamics, result) for row in result.results)
    lead = f"{result.episodes} episodes each, seed {result.seed}, without exploration noise, in: {names}."
    body = [
        header(f"A policy for {result.task}"),
        paragraph(lead),
        verdict_box(result.verdict, result.findings),
        cards(_headline(result)),
        section("Returns", *(table.html() for table in returns(result) if table.rows)),
        _histograms(result),
        _training(read_metrics(folder)),
        section("In motion", *motion, lead="From the same start, in real time; not chosen by how well it went."),
        _config(folder),
    ]
    return page(f"{result.task}: {folder.name}", body)


def moving(folder: Path, result: PolicyEvaluation, starts: str | None = None, task: str | None = None) -> list[str]:
    """Return an animation of the policy in each of its dynamics beside the simulator, or the reason for having none."""
    names = [row.dynamics for row in result.results]
    others = [name for name in names if name != ANALYTIC] or names
    ground = None if result.ground is UNSET else result.ground

    def record(name: str) -> Recording:
        return record_policy(folder, name, seconds=SECONDS, seed=result.seed, starts=starts, ground=ground, task=task)

    def caption(made: Recording) -> str:
        return f"{result.task}: {made.predicted_label} beside {made.truth_label}, {made.worlds[0]}"

    return [film_of(partial(record, name), caption) for name in tracked(others)]


def _headline(result: PolicyEvaluation) -> list[tuple[str, str, str]]:
    return [
        (f"{row.mean:.5g}", f"return in {row.dynamics}", f"± {row.std:.3g} between episodes; {row.failed:.0%} failed")
        for row in result.results
    ]


_MOST_SENSITIVE = 12
"""Most randomised quantities shown."""


def returns(result: PolicyEvaluation) -> list[Table]:
    """Return tables of the returns by dynamics and of the errors between dynamics."""
    several = len(result.policies) > 1
    rows = [
        [_name_with_remarks(row.dynamics, result), f"{row.mean:.5g}",
         *([f"{row.least:.5g} to {row.greatest:.5g}"] if several else []),
         *([] if row.worst_tenth is UNSET else [f"{row.worst_tenth:.5g}"]),
         f"{row.std:.3g}", f"{row.length:.4g}", f"{row.failed:.0%}",
         f"{row.implausible:.0%}", MISSING if row.success is UNSET else f"{row.success:.0%}"]
        for row in result.results
    ]  # fmt: skip
    across = ["Range of policies"] if several else []
    across += [] if result.randomise is UNSET else ["Worst tenth"]
    head = ["Dynamics", "Return", *across, "Standard deviation", "Length [frames]", "Failed", "Implausible", "Success"]
    pairs = [
        [f"{e.a} to {e.b}{'' if e.paired else ' (other starts)'}", f"{e.difference:+.4g}", f"{e.relative:.2%}",
         MISSING if e.interval is None else f"{e.interval[0]:+.2%} to {e.interval[1]:+.2%}"]
        for e in result.reward_error
    ]  # fmt: skip
    compared = ["Reward error", "Difference of mean returns", "Relative", f"{LEVEL:.0%} interval"]
    return [
        Table(_title(result), head, rows, strong=1),
        Table("Reward error", compared, pairs, strong=2),
        commands_table(result.results),
        _promises(result),
        *_sensitivity(result),
        _terms(result),
        _by_policy(result),
    ]


def _name_with_remarks(dynamics: str, result: PolicyEvaluation) -> str:
    """Return the name of dynamics with their caveat, and whether they come from logs or are the declared simulator."""
    remarks = [result.caveats[dynamics]] if dynamics in result.caveats else []
    if dynamics in result.from_logs:
        remarks.append("made from logs")
    elif result.from_logs and is_declared(dynamics):
        remarks.append("declared simulator")
    return f"{dynamics} ({'; '.join(remarks)})" if remarks else dynamics


def _title(result: PolicyEvaluation) -> str:
    who = f"{len(result.policies)} policies" if result.policies else result.policy
    conditions = "" if result.ground is UNSET else f", ground {result.ground}"
    conditions += "" if result.randomise is UNSET else f", robots with {', '.join(result.randomise)}"
    return f"{result.task}: {who}, {result.episodes} episodes{' each' if result.policies else ''}{conditions}"


def _sensitivity(result: PolicyEvaluation) -> list[Table]:
    """Return a table per dynamics: the randomised quantities that the return depends on, strongest first."""
    return [
        Table(
            f"What the return in {row.dynamics} depends on",
            ["Quantity", "Low third", "Return there", "High third", "Return there", "Rank correlation"],
            [
                [one.name, f"{one.low:.4g}", f"{one.return_low:.5g}", f"{one.high:.4g}", f"{one.return_high:.5g}",
                 f"{one.correlation:+.2f}"]
                for one in row.sensitivity[:_MOST_SENSITIVE]
            ],
        )
        for row in result.results
        if row.sensitivity is not UNSET
    ]  # fmt: skip


_BINS, _TREND = 12, 8
"""Columns of a histogram; number of groups of episodes, sorted by the drawn value, whose means form the trend."""


def _histograms(result: PolicyEvaluation) -> str:
    """Return histograms of the drawn values and the returns over them, for the most influential quantities."""
    shown = []
    for row in result.results:
        if row.sensitivity is UNSET or row.drawn is UNSET or row.returns is UNSET:
            continue
        for index, entry in enumerate(row.sensitivity[:_MOST_SENSITIVE]):
            numbers, gained = np.array(row.drawn[entry.name]), np.array(row.returns)
            if numbers.min() == numbers.max():
                continue
            parts = np.array_split(np.argsort(numbers), min(_TREND, len(numbers)))
            means = [(float(numbers[part].mean()), float(gained[part].mean())) for part in parts]
            text = f"Return in {row.dynamics} against {entry.name}: episodes, and means of eighths of them"
            x, y = (list(column) for column in zip(*means, strict=True))
            curves = [
                PlotCurve("episodes", numbers.tolist(), gained.tolist(), QUIET, " ", 1.0, 0.5),
                PlotCurve("mean", x, y, PREDICTED, "-", 1.8),
            ]
            name = f"{row.dynamics}-{index}"
            drawing = plot(f"return-{name}", curves, x_label=entry.name, bars=True, description=text)
            shown.append(figure(drawing, text))
            counts, edges = np.histogram(numbers, _BINS)
            steps = PlotCurve(
                None, np.repeat(edges, 2).tolist(), [0, *np.repeat(counts, 2).tolist(), 0], THIRD, "-", 1.5
            )
            text = f"Episodes by {entry.name}"
            shown.append(figure(plot(f"drawn-{name}", [steps], x_label=entry.name, description=text), text))
    lead = (
        "Each episode has a robot of its own; those that the return depends on most, by rank correlation, come first."
    )
    return section("Robots that differ", grid(shown), lead=lead) if shown else ""


def _promises(result: PolicyEvaluation) -> Table:
    """Return what the trainings promise by their judges; no rows without judges."""
    rows = [
        [policy, f"{one.interval[0]:.4g} to {one.interval[1]:.4g}", f"{one.judged:.4g}", f"{one.imagined:.4g}",
         f"{one.excess:+.3g}", MISSING if one.worst_tenth is UNSET else f"{one.worst_tenth:.4g}",
         f"{one.update} of {one.updates}"]
        for policy, one in result.promises.items()
    ]  # fmt: skip
    head = [
        "Policy", f"Return on the robot ({CONFIDENCE:.0%} interval)", "Judges' mean", "Imagined",
        "Imagined less judges'", "Worst tenth of the posterior", "Kept update",
    ]  # fmt: skip
    return Table("What the training promises", head, rows, strong=1)


def _terms(result: PolicyEvaluation) -> Table:
    """Return the reward terms' shares of the return, by dynamics; no rows if there is only one term."""
    by_dynamics = {row.dynamics: {} if row.terms is UNSET else row.terms for row in result.results}
    names = list(dict.fromkeys(name for terms in by_dynamics.values() for name in terms))
    rows = [
        [dynamics, *(MISSING if name not in terms else f"{terms[name]:.4g}" for name in names)]
        for dynamics, terms in by_dynamics.items()
    ]
    return Table("Return by term of the reward", ["Dynamics", *names], rows if len(names) > 1 else [])


def _by_policy(result: PolicyEvaluation) -> Table:
    names = [row.dynamics for row in result.results]
    rows = [
        [one.policy, *(f"{row.mean:.5g} ({row.failed:.0%} failed)" for row in one.results)] for one in result.policies
    ]
    return Table("Return of each policy", ["Policy", *names], rows)


def _training(lines: Sequence[Mapping[str, Any]]) -> str:
    played = [line for line in lines if "return_training" in line]
    if not played:
        return ""
    names = {
        "return_training": ("where it is trained", PREDICTED),
        "return_reference": ("in the reference", TRUTH),
        "penalised_training": ("where it is trained, less the penalty", SECOND),
        "return_judge": ("in its judge", THIRD),
    }
    curves = []
    for key, (label, colour) in names.items():
        ys = [line.get(key) for line in played]
        differs = key != "penalised_training" or ys != [line.get("return_training") for line in played]
        if differs and any(y is not None for y in ys):
            points = [(line["frames"], y) for line, y in zip(played, ys, strict=True) if y is not None]
            curves.append(PlotCurve(label, [x for x, _ in points], [y for _, y in points], colour, "-", 1.6))
    caption = "Return without exploration noise during training"
    shown = [figure(plot("returns", curves, x_label="frames", unit="", bars=True, description=caption), caption)]
    for key, text in (("length", "Mean length of episodes in training [frames]"), ("noise", "Exploration noise")):
        shown.append(_over_frames(lines, key, text))
    shown += _gradients(lines)
    if any(line.get("outside") is not None for line in played):
        shown.append(_over_frames(played, "outside", "Share of frames outside of the log"))
    last = next((line for line in reversed(lines) if "cpu_seconds" in line), {})
    lead = (
        f"{last.get('frames', 0):,} frames in {last.get('cpu_seconds', 0.0):.0f} CPU-s. The policy that is kept is the "
        f"best one {'by its judges' if any('falls' in line for line in played) else 'where it was trained'}; the "
        "reference is watched, never used."
    )
    judged = [line for line in played if "exploits" in line]
    if judged:
        lead += f" {_support_sentence(judged)}"
    return section("Training", grid(shown), lead=lead)


def _over_frames(lines: Sequence[Mapping[str, Any]], key: str, text: str) -> str:
    known = [line for line in lines if line.get(key) is not None]
    curve = PlotCurve(None, [line["frames"] for line in known], [line[key] for line in known], THIRD, "-", 1.3)
    return figure(plot(key, [curve], x_label="frames", unit="", description=text), text)


def _support_sentence(judged: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on the update from which the imagined return was not supported, if any."""
    by = f"{judged[-1]['judged_by']} and the log" if "judged_by" in judged[-1] else "the log"
    first = next((line for line in judged if line["exploits"]), None)
    if first is None:
        return f"The imagined return is supported by {by}."
    return f"From update {first['step']} on the imagined return is not supported by {by}."


def _gradients(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how gradients through the dynamics grow with the horizon; empty without gradients."""
    seen = [line for line in lines if "gradients" in line]
    if not seen:
        return []
    late = seen[-max(1, len(seen) // _LATE) :]
    ahead = sorted({int(name) for line in late for name in line["gradients"]})
    curves = []
    for index, (label, colour) in enumerate((("median of the worlds", PREDICTED), ("95 % quantile", SECOND))):
        norms = [[line["gradients"][str(n)][index] for line in late if str(n) in line["gradients"]] for n in ahead]
        curves.append(PlotCurve(label, ahead, [sum(part) / len(part) for part in norms], colour, "-", 1.6))
    text = "Gradient of a return with respect to an action, by the number of frames (last quarter of the updates)"
    return [figure(plot("gradients", curves, x_label="frames", unit="", log=True, bars=True, description=text), text)]


def _config(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return section("Configuration", fold("config.yaml", code((folder / "config.yaml").read_text("utf-8"))))
    return ""


class PolicyGap(Record, frozen=True):
    """Returns of two policies of a robot, in their training models and on the robot.

    Attributes:
        task: Name of the task.
        robot: The robot, as FILE.py:CLASS.
        minutes: Length of its logs [min].
        policies: Names of the policies: before the model was adapted, and after.
        promised: Return of each in its training model.
        reached: Return of each on the robot.
        speeds: Mean ground speed of each on the robot [m/s].
        updates: Training updates of the second policy.
        cpu_seconds: CPU time of identification and training [s].
        verdict: Whether the gap is closed.
    """

    task: str
    robot: str
    minutes: float
    policies: tuple[str, str]
    promised: tuple[Returns, Returns]
    reached: tuple[Returns, Returns]
    speeds: tuple[float, float]
    updates: int
    cpu_seconds: dict[str, float]
    verdict: str = "ok"

    def table(self) -> Table:
        """Return a table of the promised and the reached return of each policy."""
        rows = []
        for name, promise, fact, speed in zip(self.policies, self.promised, self.reached, self.speeds, strict=True):
            kept = f"{fact.mean / promise.mean:.0%}" if promise.mean > 0 else MISSING
            row = [name, f"{promise.mean:.0f}", _with_error(fact), kept, f"{speed:.2f} m/s", f"{fact.failed:.0%}"]
            rows.append(row)
        return Table("Returns", _GAP_HEAD, rows, strong=2)


_GAP_HEAD = ("Policy", "Its model promises", "The robot returns", "Of the promise", "Speed", "Failed")


def _with_error(measured: Returns) -> str:
    return f"{measured.mean:.0f} ± {_error(measured):.0f}"


class PlayedPolicy(Record, frozen=True):
    """Returns of one policy, in its training model and on a robot.

    Attributes:
        policy: Name of the policy.
        promised: Its return in the model.
        reached: Its return on the robot.
        speed: Mean ground speed on the robot [m/s].
    """

    policy: str
    promised: Returns
    reached: Returns
    speed: float


def play_in_both(
    task: str, robot: str, policy: str, model: str, played: Path, *, episodes: tuple[int, int], seed: int = 0
) -> PlayedPolicy:
    """Evaluate a policy on a robot and in its training model, without exploration noise.

    Args:
        task: Name of the task.
        robot: The robot, as FILE.py:CLASS.
        policy: The policy.
        model: Its model.
        played: Store for the episodes on the robot; a complete one is reused.
        episodes: Number of episodes on the robot, and in the model.
        seed: Seed of starts.

    Raises:
        InputError: Policy, model and robot are incompatible.
    """
    frames = load_task(task).frames
    with ThreadPoolExecutor(1) as pool, stage(0.0, 1.0, "the robot"):  # which leaves a core to the model
        promising = pool.submit(evaluate_policy, (policy,), (model,), episodes=episodes[1], seed=seed)
        summary = log_policies((policy,), played, robot=robot, transitions=episodes[0] * frames, noise=0.0, seed=seed)
    return PlayedPolicy(
        policy=policy, promised=promising.result().results[0], reached=summary.outcomes[policy].returns_in(robot),
        speed=_speed(Store.open(played)),
    )  # fmt: skip


def measure_gap(
    task: str, robot: str, before: PlayedPolicy, after: PlayedPolicy, adaptation: IdentificationFigures
) -> PolicyGap:
    """Compare the policies before and after the model was adapted to logs of the robot.

    Args:
        task: Name of the task.
        robot: The robot, as FILE.py:CLASS.
        before: Returns of the policy before.
        after: Returns of the one that was trained in the adapted model.
        adaptation: Results of adapting the model to the logs.
    """
    metrics = read_metrics(Path(after.policy))[-1]
    gained = after.reached.mean - before.reached.mean
    verdict = Verdict("ok", "", "")
    if gained <= 2.0 * math.hypot(_error(before.reached), _error(after.reached)):
        verdict = Verdict("warning", "the second policy is not clearly better", "give another --seed")
    return PolicyGap(
        task=task, robot=robot, minutes=adaptation.log.minutes if adaptation.log else 0.0,
        policies=(before.policy, after.policy), promised=(before.promised, after.promised),
        reached=(before.reached, after.reached), speeds=(before.speed, after.speed), updates=int(metrics["step"]),
        cpu_seconds={"identification": adaptation.cpu_seconds, "training": float(metrics["cpu_seconds"])},
        verdict=str(verdict),
    )  # fmt: skip


def _speed(played: Store) -> float:
    """Return the mean ground speed of episodes, as start-to-end distance over time [m/s]."""
    paths = [played.episode(index)[0] for index in range(len(played.group))]
    seconds = sum(len(q) - 1 for q in paths) * played.header.spec.dt
    return float(sum(np.hypot(*(q[-1, :2] - q[0, :2])) for q in paths) / seconds)


def _error(measured: Returns) -> float:
    return measured.std / max(measured.episodes, 1) ** 0.5


def write_gap(
    out: Path, adaptation: IdentificationFigures, model: Path, gap: PolicyGap, played: tuple[Path, Path]
) -> Path:
    """Write OUT/report.html, the page of a closed gap, atomically, and return its path.

    Args:
        out: Folder to write.
        adaptation: Results of adapting the model to the logs.
        model: Run of the adaptation.
        gap: Measured returns.
        played: Stores of the episodes on the robot, before and after.

    Raises:
        InputError: The page cannot be written.
    """
    stores = [Store.open(path) for path in played]
    robot, dt = stores[0].header.spec.robot, stores[0].header.spec.dt
    before, _ = gap.reached
    first = {name: store.episode(0)[0][::_DRAWN] for name, store in zip(("before", "after"), stores, strict=True)}
    caption = (
        "The first episode of each in the robot, in real time; not chosen by how well it went. Grid: 1 m. The robot is "
        "drawn as declared, without its faults."
    )
    seen = gap.robot.rpartition(":")[2]
    determined = sum(one.determined for one in adaptation.parameters)
    minutes = f"{gap.minutes:.1f} minutes of noisy logs"
    body = [
        header(
            f"{seen}: a policy that fails, and one that works",
            f"{seen} stands in for a real robot: the {robot} in plain MuJoCo with a payload, worn joints, weak and "
            f"late motors and a soft, slippery floor, none of which is in its declaration. Its model was "
            f"adapted from {minutes}, and a policy was trained in it.",
            eyebrow="neurodyn demo",
        ),
        sentence_list(sentences(adaptation)),
        verdict_box(gap.verdict),
        cards(
            [
                *(
                    (f"{fact.mean:.0f}", f"return in the robot {when}",
                     f"its model promised {promise.mean:.0f}; {speed:.2f} m/s")
                    for when, promise, fact, speed in zip(
                        ("before", "after"), gap.promised, gap.reached, gap.speeds, strict=True
                    )
                ),
                (str(determined), "quantities identified",
                 f"of {len(adaptation.parameters)}; the logs do not determine the others"),
                (f"{sum(gap.cpu_seconds.values()):.0f} s", "of CPU time", "identification and training, in this run"),
            ]
        ),
        section("In motion", drawn_motions(load_robot(robot), first, _DRAWN * dt, caption)),
        section(
            "Promise and fact", gap.table().html(),
            lead=f"{before.episodes} episodes of each policy in the robot and {gap.promised[0].episodes} in its model, "
            "without exploration noise; ± is the standard error of the mean.",
        ),
        *evidence(adaptation, read_forecasts(model)),
        _training(read_metrics(Path(gap.policies[1]))),
        section("What is compiled, what is learned, what was seen", facts(_origins(gap, determined, minutes))),
        section("The same with your robot", code(_COMMANDS)),
    ]  # fmt: skip
    path = out / "report.html"
    write_text(path, page(f"{seen}: adapted", body, DRAWN.read_text(encoding="utf-8")))
    return path


def _origins(gap: PolicyGap, determined: int, minutes: str) -> list[tuple[str, str]]:
    return [
        ("Compiled", "rigid bodies, joint limits and MuJoCo's soft contacts, as one differentiable program"),
        (
            "Learned",
            f"in this run: {determined} quantities of the robot; the second policy, by {gap.updates} updates of PPO",
        ),
        ("Pretrained", f"the first policy, {gap.policies[0]}, from which the second began"),
        ("Seen", f"of the robot: {minutes}; the second policy was trained in the model alone"),
        ("Chosen", "nothing: seeds are fixed, and every number here was measured in this run"),
    ]


_DRAWN = 2
"""Number of frames between drawn positions."""
_COMMANDS = """\
neurodyn init my_robot.urdf                      # its declaration
neurodyn import logs/*.csv --robot my_robot      # its logs
neurodyn adapt my_robot --data log.h5 --out runs/mine
neurodyn policy train velocity@my_robot --dynamics runs/mine --out policies/mine"""
