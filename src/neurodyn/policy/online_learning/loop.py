# SPDX-License-Identifier: Apache-2.0
"""Online loop: rounds until model and reference agree, or rounds run out; resumable at any point; OUT/report.html."""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

from msgspec import UNSET

from neurodyn.control.resolve import is_declared
from neurodyn.core import artifacts
from neurodyn.core.interruption import Interrupted
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import showing
from neurodyn.core.provenance import package_versions
from neurodyn.core.registry import is_file
from neurodyn.core.requests import accepts_request
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.artifact import load
from neurodyn.learn.loop import other_data
from neurodyn.learn.manifest import DEFAULT_ALGORITHM, MANIFEST, RunRecord, data_of, file_checksums, read_manifest
from neurodyn.learn.metrics import MetricsLog, read_metrics
from neurodyn.learn.run_folder import check_run
from neurodyn.learn.tracking import require_tracker, tracking
from neurodyn.policy.artifact import load_policy, save_policy
from neurodyn.policy.online_learning.problem import OnlineProblem, by_task, pose, require_one_robot
from neurodyn.policy.online_learning.record import (
    SECONDS,
    FittedModel,
    OnlineResult,
    Round,
    SharedResult,
    TrainedPolicy,
    best_of,
    has_settled,
    verdict,
)
from neurodyn.policy.online_learning.rounds import EarlierRounds, RoundInProgress
from neurodyn.policy.online_learning.settings import OnlineSettings
from neurodyn.policy.requests import OnlineRequest
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, code, figure, fold, grid, header, page, paragraph, section
from neurodyn.report.plots import PREDICTED, THIRD, TRUTH, PlotCurve, plot


def render_page(out: Path, result: OnlineResult) -> str:
    """Return OUT/report.html."""
    beginning = "a new model" if result.dynamics == "new" else result.dynamics
    body = [
        header(f"{result.task}: learned in turns with a {result.kind} model"),
        paragraph(f"From {beginning}; reference: {result.reference}. Verdict: {result.verdict}."),
        *(paragraph(f"Model of round {one.number}: {caveat}.") for one in result.rounds if (caveat := _caveat(one))),
        cards(_headline(result)),
        section("Rounds", grid(_plots(result)), rounds_table(result).html(), lead=_LEAD),
        section("Ends of episodes", ends_table(result).html()),
        section("Configuration", fold("config.yaml", code((out / "config.yaml").read_text("utf-8")))),
    ]
    return page(f"{result.task}: {out.name}", body)


_LEAD = (
    "Returns are without exploration noise, in whole episodes. The model's error is that on the log of the round's "
    f"policy, which it has not seen: velocities {SECONDS:g} s ahead, as a share of the persistence baseline's error."
)


def _headline(result: OnlineResult) -> list[tuple[str, str, str]]:
    best = result.rounds[result.best - 1]
    return [
        (
            f"{best.real.mean:.5g}",
            f"return in {result.reference}",
            f"{best.real.episodes} episodes, round {best.number}",
        ),
        (f"{best.imagined.mean:.5g}", "return in the model", f"{best.gap:.1%} apart"),
        (f"{result.frames:,}", frames_of(result.reference), f"{result.first_frames:,} of them before the first policy"),
        (f"{result.cpu_seconds / 60:.1f}", "CPU-min", f"{len(result.rounds)} rounds"),
    ]


def _plots(result: OnlineResult) -> list[str]:
    rounds = result.rounds
    numbers = [float(one.number) for one in rounds]
    returns = [
        PlotCurve("in the model", numbers, [one.imagined.mean for one in rounds], PREDICTED),
        PlotCurve(f"in {result.reference}", numbers, [one.real.mean for one in rounds], TRUTH),
    ]
    known = [(float(one.number), one.model_error) for one in rounds if one.model_error is not None]
    errors = [PlotCurve(None, [number for number, _ in known], [error for _, error in known], THIRD)]
    captions = {"returns": "Return by round", "errors": "Model error on the states of the round's policy"}
    return [
        figure(plot(name, curves, x_label="round", unit="", bars=True, description=captions[name]), captions[name])
        for name, curves in (("returns", returns), ("errors", errors))
    ]


def rounds_table(result: OnlineResult) -> Table:
    """Return returns, errors and costs by round."""
    head = [
        "Round", "Return in the model", "Before calibration", f"Return in {result.reference}",
        "Standard deviation", "Apart", "Model error",
        frames_of(result.reference).capitalize(), "Fit [CPU-s]", "Policy [CPU-s]", "Frames in the model",
        "In the judge", "Frames outside of the log", "Updates",
    ]  # fmt: skip
    frames = list(accumulate((one.frames for one in result.rounds), initial=result.first_frames))[1:]
    return Table("Rounds", head, [_row(*row) for row in zip(result.rounds, frames, strict=True)], strong=3)


def _row(round_: Round, frames: int) -> list[str]:
    assert round_.model is not None
    assert round_.policy is not None
    return [
        str(round_.number), f"{round_.imagined.mean:.5g}",
        MISSING if round_.uncalibrated is None else f"{round_.uncalibrated.mean:.5g}",
        f"{round_.real.mean:.5g}", f"{round_.real.std:.3g}", f"{round_.gap:.1%}",
        MISSING if round_.model_error is None else f"{round_.model_error:.3g}", f"{frames:,}",
        f"{round_.model.cpu_seconds:.0f}", f"{round_.policy.cpu_seconds:.0f}", f"{round_.policy.frames:,}",
        *_support(round_.policy),
    ]  # fmt: skip


def _support(policy: TrainedPolicy) -> list[str]:
    """Return the return in the judge, the share of frames outside of the log, and the updates with why they ended."""
    support = policy.support if policy.support else None
    judge = MISSING if support is None or support.judge is None else f"{support.judge:.5g}"
    outside = MISSING if support is None or support.outside is None else f"{support.outside:.0%}"
    updates = MISSING if policy.updates is UNSET else str(policy.updates)
    return [judge, outside, f"{updates} (not supported)" if policy.stopped else updates]


def ends_table(result: OnlineResult) -> Table:
    """Return the reasons why episodes ended: implausible states, other failures, time."""
    rows = []
    for round_ in result.rounds:
        assert round_.log is not None
        by_place = {"model": round_.imagined, "reference": round_.real, "reference, with noise": round_.log.noisy}
        for place_text, returns in by_place.items():
            rows.append(
                [f"{round_.number}, {place_text}", str(returns.episodes), f"{returns.length:.4g}",
                 f"{returns.implausible:.0%}", f"{returns.failed - returns.implausible:.0%}",
                 f"{1.0 - returns.failed:.0%}"]
            )  # fmt: skip
    head = ["Round", "Episodes", "Length [frames]", "Implausible", "Other failures", "Time limit"]
    return Table("Ends of episodes", head, rows)


OnlineRecord = RunRecord[OnlineSettings]
"""Record of a loop: OUT/config.yaml."""

RESULT = "online.json"
_RANDOM = "random"


@accepts_request(OnlineRequest)
def online(request: OnlineRequest) -> OnlineResult | SharedResult:
    """Train a policy in a model, log it, fit the model to the log, and repeat until model and reference agree.

    Several tasks of one robot share the model, which each round fits to the logs of all their policies.

    Returns:
        Returns, errors and frames by round, and the verdict; of each task, if there are several.

    Raises:
        InputError: An argument is unknown, missing or of another robot or task; no simulator is installed; or the
            folder holds a loop (and `resume` is false), or cannot be resumed.
        Interrupted: Ctrl-C or SIGTERM in a training; what was finished is kept.
    """
    folder, resume, logger = Path(request.out), request.resume, request.logger
    require_tracker(logger, folder)
    requests = by_task(request)
    problems = [pose(one) for one in requests]
    require_one_robot([problem.task for problem in problems])
    with exclusive(folder), tracking(logger, folder), ExitStack() as logs:
        loops = []
        for problem, own in zip(problems, requests, strict=True):
            out = Path(own.out)
            record = _begin(problem, own.task if isinstance(own.task, str) else own.task.name, out, resume)
            log = logs.enter_context(MetricsLog(out, _rounds_in(out) if resume else 0))
            log.start(record, problem.device)
            loops.append(_Loop(problem, own, log))
        try:
            results = _run(loops)
            if len(results) == 1:
                return results[0]
            shared = SharedResult.of({one.task: one for one in results})
            artifacts.write_json(folder / RESULT, shared.plain())
            return shared
        except KeyboardInterrupt as stop:
            raise Interrupted(getattr(stop, "code", 130), f"{folder}: interrupted", resumes=True) from None


def _begin(problem: OnlineProblem, name: str, out: Path, resume: bool) -> OnlineRecord:
    """Return the record of the loop, after a comparison with the folder's record."""
    record = OnlineRecord(
        kind=problem.kind, task=name, dynamics=problem.dynamics, data=problem.data, settings=problem.settings,
        versions=package_versions("torch", "rsl-rl-lib", "newton"),
        algorithm="" if (algorithm := problem.settings.policy.algorithm) == DEFAULT_ALGORITHM else algorithm,
        base=UNSET if problem.policy is None else str(problem.policy),
    )  # fmt: skip
    check_run(out, record, resume, state=None)
    if resume:
        _require_same_data(record, out)
    artifacts.require_writable(out / RESULT)
    return record


def _require_same_data(record: OnlineRecord, out: Path) -> None:
    """Raise an InputError if the first model learned from other data."""
    if not (out / MANIFEST).exists():
        return
    known, now = read_manifest(out).files.values(), file_checksums(record)
    for name in data_of(record):
        if now.get(name) not in known:
            raise other_data(out, f"{name} differs")


def _rounds_in(out: Path) -> int:
    return max((entry["step"] for entry in read_metrics(out)), default=0)


def _run(loops: "Sequence[_Loop]") -> list[OnlineResult]:
    """Run rounds of loops that share a model, until all agree with the reference or rounds run out."""
    first, frames = loops[0].first_data()
    while True:
        model, results = None, []
        done = [(loop.problem.task, tuple(loop.rounds)) for loop in loops]
        for k, loop in enumerate(loops):
            known = EarlierRounds(first, done[k][1], (*done[:k], *done[k + 1 :]))
            results.append(loop.advance(known, frames, model))
            model = loop.rounds[-1].model
        over = all(one.settled for one in results) or len(loops[0].rounds) >= loops[0].problem.settings.rounds
        for loop, result in zip(loops, results, strict=True):
            loop.follow(result, over)
        if over:
            return results


class _Loop:
    def __init__(self, problem: OnlineProblem, request: OnlineRequest, log: MetricsLog) -> None:
        self.problem, self.request, self.log, self.out = problem, request, log, Path(request.out)
        self.rounds: list[Round] = []
        self._logged = _rounds_in(self.out)

    def advance(self, known: EarlierRounds, first_frames: int, model: FittedModel | None) -> OnlineResult:
        """Do the next round, in a given model if another loop has fitted it, and return the result so far."""
        number = len(self.rounds) + 1
        folder = self.out / "rounds" / f"{number:02d}"
        self.rounds.append(RoundInProgress(self.problem, folder, number, known, self.request.stages, model).run())
        result = self._result(self.rounds, first_frames)
        self._write(result)
        if self.request.report is not None:
            task = f"{self.problem.task.name}, " if known.others else ""
            self.request.report(task + line(self.rounds[-1], result.frames))
        return result

    def follow(self, result: OnlineResult, over: bool) -> None:
        """Write the metrics line of a round, if it is missing, and the one at the end."""
        round_ = result.rounds[-1]
        if round_.number > self._logged:
            self.log.write(
                round_.number, return_model=round_.imagined.mean, return_reference=round_.real.mean, gap=round_.gap,
                failed_model=round_.imagined.failed, failed_reference=round_.real.failed,
                model_error=round_.model_error, frames=result.frames, cpu_seconds=result.cpu_seconds,
            )  # fmt: skip
        if over:
            self.log.write(
                round_.number, finished=True, verdict=result.verdict, best=result.best, settled=result.settled,
                frames=result.frames, cpu_seconds=result.cpu_seconds,
            )  # fmt: skip

    def first_data(self) -> tuple[tuple[str, ...], int]:
        """Return the training files of the first model, and their number of frames from the reference."""
        problem, settings = self.problem, self.problem.settings
        if problem.data:
            stores = [problem.refit.open(problem.task.declaration(), name) for name in problem.data]
            return problem.data, sum(store.transitions for store in stores)
        if not settings.frames:
            return (), 0
        path, note = self.out / f"{_RANDOM}.h5", self.out / f"{_RANDOM}.json"
        if not note.is_file():
            seed = derive_seed(settings.seed, "online random")
            if problem.robot is None:
                path.unlink(missing_ok=True)
            stages = self.request.stages
            with showing(None if stages is None else stages("first log")), problem.acting(path) as acting:
                used = problem.refit.random(problem.task, acting, settings, path, seed, problem.policy)
            artifacts.write_json(note, {"frames": used})
            if self.request.report is not None and problem.robot is not None:
                self.request.report(f"first log: {used:,} {frames_of(settings.reference)} in {path}")
        return (str(path),), int(artifacts.read_json(note)["frames"])

    def _result(self, rounds: list[Round], first_frames: int) -> OnlineResult:
        problem, settings = self.problem, self.problem.settings
        parts = [part for one in rounds for part in (one.model, one.policy, one.log) if part is not None]
        return OnlineResult(
            task=problem.task.name, kind=problem.kind, dynamics=problem.dynamics, reference=settings.reference,
            first_frames=first_frames, frames=first_frames + sum(one.frames for one in rounds), rounds=rounds,
            best=best_of(rounds).number, settled=has_settled(rounds, settings.tolerance, settings.patience),
            verdict=verdict(rounds, settings.tolerance, settings.reference, simulated=self._reference_is_declared()),
            cpu_seconds=sum(part.cpu_seconds for part in parts),
        )  # fmt: skip

    def _reference_is_declared(self) -> bool:
        """Return whether the reference is the declared simulator although the model was made from logs of the robot."""
        problem = self.problem
        if not is_declared(problem.settings.reference):
            return False
        run, robot = problem.first_run, problem.task.declaration()
        known = run is not None and load(run).from_logs
        return known or any(problem.refit.open(robot, name).header.of_robot for name in problem.data)

    def _write(self, result: OnlineResult) -> None:
        best = result.rounds[result.best - 1].policy
        assert best is not None
        save_policy(self.out / "policy", *load_policy(best.folder))
        artifacts.write_json(self.out / RESULT, result.plain())
        artifacts.write_text(self.out / "report.html", render_page(self.out, result))


def frames_of(reference: str) -> str:
    """Return the name of frames from a reference."""
    return "robot frames" if is_file(reference) else "simulator frames"


def _early_end(round_: Round) -> str:
    policy = round_.policy
    if policy is None or not policy.stopped:
        return ""
    return f"; training ended after {policy.updates} of {policy.of_updates} updates ({policy.support})"


def _caveat(round_: Round) -> str:
    return round_.model.caveat or "" if round_.model is not None else ""


def line(round_: Round, frames: int) -> str:
    """Return a one-line summary of a round."""
    remark = f" ({caveat})" if (caveat := _caveat(round_)) else ""
    if round_.uncalibrated is not None:
        remark += f" (before calibration {round_.uncalibrated.mean:.4g})"
    error = "not known" if round_.model_error is None else f"{round_.model_error:.3g}"
    if round_.measured is not None and round_.measured.finite_fraction is not UNSET:
        error += f" ({round_.measured.finite_fraction:.0%} of its forecasts are finite)"
    return (
        f"round {round_.number}: return {round_.imagined.mean:.4g} in the model{remark}, {round_.real.mean:.4g} in "
        f"{round_.real.dynamics} ({round_.gap:.1%} apart; failed {round_.imagined.failed:.0%}, "
        f"{round_.real.failed:.0%}); model error {error}{_early_end(round_)}; {frames:,} "
        f"{frames_of(round_.real.dynamics)} in all"
    )
