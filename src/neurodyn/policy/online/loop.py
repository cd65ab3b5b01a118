# SPDX-License-Identifier: Apache-2.0
"""The loop: rounds until model and reference agree, or none is left; resumable at any point."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import RESUME, Interrupted
from neurodyn.core.locks import exclusive
from neurodyn.core.seeds import derive_seed
from neurodyn.core.versions import package_versions
from neurodyn.learn.manifest import MANIFEST, data_of, file_checksums, read_manifest
from neurodyn.learn.metrics import MetricsLog, read_metrics
from neurodyn.learn.reproduction import Again
from neurodyn.learn.run_folder import check_run
from neurodyn.learn.run_record import RunRecord
from neurodyn.learn.tracking.lookup import Logger
from neurodyn.learn.tracking.session import require_tracker, tracking
from neurodyn.policy.artifact import load_policy, save_policy
from neurodyn.policy.online.page import write_page
from neurodyn.policy.online.problem import NEW, Problem, default_settings, pose
from neurodyn.policy.online.record import OnlineResult, Round, best_of, settled, verdict
from neurodyn.policy.online.rounds import Known, RoundInProgress, Stages
from neurodyn.policy.online.settings import OnlineSettings
from neurodyn.policy.train import task_of
from neurodyn.tasks import Task, load

OnlineRecord = RunRecord[OnlineSettings]
"""How a loop is made: OUT/config.yaml."""

RESULT = "online.json"
_RANDOM = "random"


def online(
    task: Task | str,
    out: str | Path,
    *,
    dynamics: str = NEW,
    kind: str | None = None,
    settings: OnlineSettings | None = None,
    data: Sequence[str] = (),
    policy: str | Path | None = None,
    device: str = "cpu",
    resume: bool = False,
    stages: Stages | None = None,
    report: Callable[[str], None] | None = None,
    logger: Logger | None = None,
) -> OnlineResult:
    """Train a policy in a model, log it, fit the model to the log, and so on, until model and reference agree.

    Args:
        task: A task, or its name.
        out: Folder: config.yaml, online.json, report.html, policy/ (the best in the reference), and rounds/NN/ with
            model-run/, policy/, log.h5 and round.json.
        dynamics: "new", a run directory, or "pretrained:NAME".
        kind: Kind of the model: "neural", "hybrid" or "world-model"; None for that of the run, or neural.
        settings: Settings; None for those that suit the kind.
        data: Files that a new model learns from in place of random data.
        policy: Policy to begin with; None for a random one.
        device: Torch device of models and policies.
        resume: Go on with a loop that was stopped; more rounds may be asked for.
        stages: From the name of a step ("round 1, model") to what shows how far it is.
        report: Takes a line after each round.
        logger: What follows the loop and the trainings in it, as of `learn.train`.

    Returns:
        Returns, errors and frames by round, and the verdict.

    Raises:
        InputError: Something of that is unknown, missing or of another robot or task; no simulator is installed; or the
            folder holds a loop (and `resume` is not asked for), or cannot be resumed.
        Interrupted: Ctrl-C or SIGTERM in a training; what was finished is kept.
    """
    require_tracker(logger, out)
    wanted = load(task) if isinstance(task, str) else task
    name = task if isinstance(task, str) else task.name
    chosen = default_settings(name, dynamics, kind) if settings is None else settings
    problem = pose(wanted, dynamics, kind, chosen, data=data, policy=policy, device=device)
    folder = Path(out)
    with exclusive(folder), tracking(logger, folder):
        record = _begin(problem, name, folder, resume)
        try:
            with MetricsLog(folder, _rounds_in(folder) if resume else 0) as log:
                log.start(record, problem.device)
                return _Loop(problem, folder, log, stages, report).run()
        except KeyboardInterrupt as stop:
            code = getattr(stop, "code", 130)
            raise Interrupted(f"{folder}: interrupted{RESUME}", code) from None


def _begin(problem: Problem, name: str, out: Path, resume: bool) -> OnlineRecord:
    """Return how the loop is made, after it was compared with what is there."""
    record = OnlineRecord(
        kind=problem.kind, task=name, dynamics=problem.dynamics, data=problem.data, settings=problem.settings,
        versions=package_versions("torch", "rsl-rl-lib", "newton"),
        base=UNSET if problem.policy is None else str(problem.policy),
    )  # fmt: skip
    check_run(out, record, resume, state=None)
    if resume:
        _require_same_data(record, out)
    artifacts.require_writable(out / RESULT)
    return record


def _require_same_data(record: OnlineRecord, out: Path) -> None:
    """Refuse to go on with other data than the first model learned from.

    Raises:
        InputError: They differ from those in the manifest.
    """
    if not (out / MANIFEST).exists():
        return
    known, now = read_manifest(out).files.values(), file_checksums(record)
    for name in data_of(record):
        if now.get(name) not in known:
            raise InputError(
                f"{out}: --resume needs the data that the run was started with, and {name} differs; give the same "
                "--data, or another --out"
            )


def _rounds_in(out: Path) -> int:
    """Return the number of the last round that is in the metrics."""
    return max((entry["step"] for entry in read_metrics(out)), default=0)


def online_again(again: Again) -> None:
    """Run a loop once more."""
    record = again.read(OnlineRecord)
    online(
        task_of(again), again.out, dynamics=record.dynamics, kind=record.kind, settings=record.settings,
        data=again.data,
        policy=record.base if isinstance(record.base, str) else None, device=again.device,
    )  # fmt: skip


class _Loop:
    def __init__(
        self,
        problem: Problem,
        out: Path,
        log: MetricsLog,
        stages: Stages | None,
        report: Callable[[str], None] | None,
    ) -> None:
        self.problem, self.out, self.log, self.stages = problem, out, log, stages
        self._logged = _rounds_in(out)
        self.report: Callable[[str], Any] = report or (lambda line: None)

    def run(self) -> OnlineResult:
        rounds: list[Round] = []
        first, frames = self._first_data()
        while True:
            number = len(rounds) + 1
            known, folder = Known(first, tuple(rounds)), self.out / "rounds" / f"{number:02d}"
            rounds.append(RoundInProgress(self.problem, folder, number, known, self.stages).run())
            result = self._result(rounds, frames)
            self._write(result)
            self.report(line(rounds[-1], result.frames))
            over = result.settled or number >= self.problem.settings.rounds
            self._follow(result, over)
            if over:
                return result

    def _follow(self, result: OnlineResult, over: bool) -> None:
        """Write the line of a round, if it is not there, and that of the end."""
        one = result.rounds[-1]
        assert one.measured is not None
        if one.number > self._logged:
            self.log.write(
                one.number, return_model=one.imagined.mean, return_reference=one.real.mean, gap=one.gap,
                failed_model=one.imagined.failed, failed_reference=one.real.failed,
                model_error=one.measured.model_error, frames=result.frames, cpu_seconds=result.cpu_seconds,
            )  # fmt: skip
        if over:
            self.log.write(
                one.number, finished=True, verdict=result.verdict, best=result.best, settled=result.settled,
                frames=result.frames, cpu_seconds=result.cpu_seconds,
            )  # fmt: skip

    def _first_data(self) -> tuple[tuple[str, ...], int]:
        """Return the files that the first model learns from, and the frames of the reference that they took."""
        problem, settings = self.problem, self.problem.settings
        if problem.data:
            stores = [problem.refit.open(problem.task.declaration(), name) for name in problem.data]
            return problem.data, sum(store.transitions for store in stores)
        if not settings.frames:
            return (), 0
        path, note = self.out / f"{_RANDOM}.h5", self.out / f"{_RANDOM}.json"
        if not note.is_file():
            seed = derive_seed(settings.seed, "online random")
            path.unlink(missing_ok=True)
            used = problem.refit.random(problem.task, problem.reference, settings.frames, path, seed)
            artifacts.write_json(note, {"frames": used})
        return (str(path),), int(artifacts.read_json(note)["frames"])

    def _result(self, rounds: list[Round], first_frames: int) -> OnlineResult:
        problem, settings = self.problem, self.problem.settings
        parts = [part for one in rounds for part in (one.model, one.policy, one.log) if part is not None]
        return OnlineResult(
            task=problem.task.name, kind=problem.kind, dynamics=problem.dynamics, reference=settings.reference,
            first_frames=first_frames, frames=first_frames + sum(one.frames for one in rounds), rounds=rounds,
            best=best_of(rounds).number, settled=settled(rounds, settings.tolerance, settings.patience),
            verdict=verdict(rounds, settings.tolerance, settings.reference),
            cpu_seconds=sum(part.cpu_seconds for part in parts),
        )  # fmt: skip

    def _write(self, result: OnlineResult) -> None:
        """Write the best policy, the figures and the page."""
        best = result.rounds[result.best - 1].policy
        assert best is not None
        save_policy(self.out / "policy", *load_policy(best.folder))
        artifacts.write_json(self.out / RESULT, result.plain())
        write_page(self.out, result)


def line(one: Round, frames: int) -> str:
    """Return a round in a line."""
    assert one.measured is not None
    error = one.measured.model_error
    return (
        f"round {one.number}: return {one.imagined.mean:.4g} in the model, {one.real.mean:.4g} in {one.real.dynamics} "
        f"({one.gap:.1%} apart; failed {one.imagined.failed:.0%}, {one.real.failed:.0%}); model error "
        f"{'not known' if error is None else f'{error:.3g}'}; {frames:,} simulator frames in all"
    )
