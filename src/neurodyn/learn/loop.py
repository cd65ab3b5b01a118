# SPDX-License-Identifier: Apache-2.0
"""The training loop of all models and policies: budget, validation, best model, checkpoints, interruption."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from neurodyn.core import artifacts
from neurodyn.core import verdict as verdicts
from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted, Interruption
from neurodyn.core.progress import Progress, showing
from neurodyn.core.verdict import Verdict
from neurodyn.dynamics.guard import FOLDER, Watch, watching
from neurodyn.learn.budget import TrainingBudget, TrainState, counted_seconds
from neurodyn.learn.devices import current_ranks, threads
from neurodyn.learn.learner import Learner, OptimiserStep, Validation
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.metrics import MetricsLog

SAVE_SECONDS = 30.0
"""Wall time between two checkpoints [s]."""

KEPT_CHECKPOINTS = 2
"""Newest checkpoints to keep beside the best: if the last is damaged, a training resumes from the one before."""

MOST_REFUSED = 20
"""Consecutive steps without a finite gradient after which a training fails."""

STARVED_SECONDS, STARVED_SHARE = 20.0, 0.5
"""A training of at least this wall time [s] is starved if its CPU time is at most this share of it."""


class Callback:
    """Called during a training; a subclass overrides what it needs.

    With several processes each has its own callbacks, which must all act alike.
    """

    def on_step(self, loop: "TrainingLoop") -> None:
        """Called after each optimiser step and its validation; may call `loop.save()` to write a checkpoint."""

    def on_validate(self, loop: "TrainingLoop", validation: Validation) -> None:
        """Called after each validation; the model is already kept if it is the best."""

    def on_save(self, loop: "TrainingLoop") -> None:
        """Called after each checkpoint."""


class TrainingLoop:
    """Trains to the end of a budget.

    With a budget in steps everything depends on the seed alone: on a CPU, a killed and resumed run ends with bitwise
    the same weights. With a budget in minutes the learning rate follows the clock, and a resumed run uses the rest of
    its budget.

    Attributes:
        learner: The model in training.
        budget: The budget.
        folder: Run directory; None to write nothing.
        state: Progress of the training.
        last: The last optimiser step.
        log: Metrics of the run while it trains; None to write nothing.
    """

    def __init__(
        self,
        learner: Learner,
        budget: TrainingBudget,
        run: Path | None = None,
        *,
        name: str = "training",
        record: RunRecord[Any] | None = None,
        data: int | None = None,
        validations: int = 0,
        validate_first: bool = True,
        keep_last: bool = False,
        patience: int | None = None,
        thread_count: int | None = None,
        callbacks: Sequence[Callback] = (),
        progress: Progress | None = None,
    ) -> None:
        """Prepare a training.

        Args:
            learner: The model in training.
            budget: When each phase is over.
            run: Run directory; None to write nothing.
            name: Name of the checkpoint in RUN/state.
            record: Written to RUN/config.yaml, with RUN/manifest.json beside it, when the training starts. An input
                that is rejected before that leaves no run behind to block a new start.
            data: Checksum of the data, which must match when a training is resumed; None for no check.
            validations: Number of validations during training.
            validate_first: Whether to validate before the first step too.
            keep_last: Whether each validation with a finite score keeps the model, not only the best.
            patience: Consecutive validations without improvement that end a phase; None for no limit.
            thread_count: Threads of tensor operations; None for no change.
            callbacks: Called during the training.
            progress: Progress bar.
        """
        self.learner, self.budget, self.folder, self.state = learner, budget, run, TrainState()
        self.callbacks, self.last, self.log = callbacks, OptimiserStep(), None
        self._name, self._record, self._data, self._threads, self._progress = name, record, data, thread_count, progress
        self._validations, self._validate_first, self._patience = validations, validate_first, patience
        self._keep_last = keep_last
        self._watch = Watch()
        self._improved = False  # since the last checkpoint
        self._refused_steps = 0  # consecutive steps with a non-finite gradient
        learner.start_phase(0)

    def resume(self) -> None:
        """Continue from RUN/state; a larger budget than before adds to the current phase and the later ones.

        Raises:
            InputError: The state is missing or damaged, or data or number of processes differ from before.
        """
        assert self.folder is not None
        saved = artifacts.read_tree(self.folder / "state", self._name)
        if (before := saved.get("ranks", 1)) != current_ranks().count:
            raise InputError(
                f"{self.folder}: --resume needs as many processes as the run was started with, {before}, and there are "
                f"{current_ranks().count}; valid: torchrun --nproc-per-node {before}, or another --out"
            )
        if self._data is not None and saved.get("data") != self._data:
            raise other_data(self.folder)
        try:
            state = self.state = TrainState.read(saved["position"])
            last = len(self.budget.shares) - 1
            if last == 0:  # before there may have been several
                state.phase_step = state.step
            over, state.phase = state.phase > last, min(state.phase, last)
            self.learner.start_phase(state.phase)
            self.learner.load(saved)
            former = replace(self.budget, **saved["budget"])
            state.carried = self.budget.carry_over(state, former)
            done = self.budget.done(state)
            left_out = self.budget.as_needed and former == self.budget  # its last phases were not needed
            if over and (done >= 1.0 or not state.phase_step or left_out):
                state.phase = last + 1
            else:  # a larger budget spreads its validations anew
                state.measured = int(done * self._checks(state.phase))
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{self.folder}: state does not fit its configuration ({error})") from None

    def run(self, log: MetricsLog | None = None) -> TrainState:
        """Train to the end of the budget.

        Args:
            log: Metrics to write to; None for the run directory's own, which end with a closing line.

        Raises:
            Interrupted: Ctrl-C or SIGTERM; the checkpoint was written.
            InputError: The loss was not finite for too long.
        """
        own = current_ranks().writes(self.folder)
        with ExitStack() as stack:
            if self.folder is not None:
                stack.enter_context(current_ranks().exclusive(self.folder))
            current_ranks().require_equal(self._terms())  # before rank 0 creates files
            if self._threads is not None:
                stack.enter_context(threads(self._threads))
            self.log = log
            if log is None and own is not None:
                self.log = stack.enter_context(MetricsLog(own, self.state.step))
            if self.log is not None and self._record is not None:
                self.log.start(self._record, self.learner.device)
            self._watch = stack.enter_context(watching(None if own is None else own / FOLDER))
            self._interruption = stack.enter_context(Interruption())
            stack.enter_context(showing(None))  # validations show no progress of their own
            try:
                self._train()
            except Interrupted as stop:  # here, or in a training within this one
                raise self._interrupted(stop.code) from None
            words = current_ranks().gather(next((fault.words for fault in self._watch.faults), ""))
            self.state.verdict = current_ranks().agree(lambda: str(self._judge(next(filter(None, words), ""))))
            self.state.starved = self._is_starved()
            if log is None and self.log is not None:
                times = {"seconds": self.state.seconds, "cpu_seconds": self.state.cpu_seconds}
                closing = self.learner.closing_metrics(self.state)
                self.log.write(self.state.step, finished=True, verdict=self.state.verdict, **closing, **times)
        current_ranks().wait()  # until rank 0 has written everything
        return self.state

    def save(self) -> None:
        """Write a checkpoint to RUN/state."""
        if self.folder is None:
            return
        limits = {"steps": self.budget.steps, "minutes": self.budget.minutes}
        tree = {"position": self.state.plain(), "budget": limits, **self.learner.state()}
        if self._data is not None:
            tree["data"] = self._data
        if current_ranks().count > 1:
            tree["ranks"] = current_ranks().count
        if current_ranks().leads:
            artifacts.write_tree(self.folder / "state", self._name, tree, keep=KEPT_CHECKPOINTS, best=self._improved)
        if self._improved and self.log is not None:
            self.log.keep_model()
        self._improved = False
        for callback in self.callbacks:
            callback.on_save(self)

    def _checks(self, phase: int) -> int:
        return self.budget.validations(phase, self._validations)

    def _train(self) -> None:
        if self.state.step == 0 and self._validations and self._validate_first:
            self._write(self._validate())
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.learner.begin(self.state)
        current_ranks().lead(self.learner.shared_tensors())
        while self.state.phase < len(self.budget.shares):
            self._run_phase()
        if self.state.step and self.state.skipped == self.state.step:
            raise self._not_finite(f"in any of {self.state.step} steps")
        if current_ranks().leads:
            self.learner.finish(self.state)
        current_ranks().wait()

    def _run_phase(self) -> None:
        state, checks, saved = self.state, self._checks(self.state.phase), self.state.seconds
        patience = math.inf if self._patience is None else self._patience
        while (done := self.budget.done(state)) < 1.0 and state.stale < patience:
            self.last = self.learner.step(done, state)
            state.step, state.phase_step = state.step + 1, state.phase_step + 1
            state.skipped += not self.last.taken
            state.left_out += self.last.left_out
            self._refused_steps = 0 if self.last.taken else self._refused_steps + 1
            if self._refused_steps >= MOST_REFUSED:
                raise self._not_finite(f"in {self._refused_steps} steps in a row, up to step {state.step}")
            self._clock()
            validation = None
            if self.budget.done(state) * checks >= state.measured + 1:
                state.measured += 1
                validation = self._validate()
            self._write(validation)
            text = self.learner.text(self, validation)
            if text is not None and self._progress is not None:
                self._progress.update(self.budget.overall(state), text)
            if self._improved or state.seconds - saved > SAVE_SECONDS:
                self.save()
                saved = state.seconds
            for callback in self.callbacks:
                callback.on_step(self)
            if validation is not None and validation.over:
                break
            if stop := current_ranks().greatest(self._interruption.signal or 0):
                self._interruption.signal = stop
                self.save()
                raise self._interrupted(self._interruption.code)
        over = self.learner.end_phase(self) or state.phase + 1 == len(self.budget.shares)
        if over:  # the state is kept, so that a larger budget can extend the phase
            state.phase = len(self.budget.shares)
        else:
            state.phase, state.phase_step, state.phase_seconds = state.phase + 1, 0, 0.0
            state.measured, state.stale = 0, 0
            state.carried = 0.0
            self.learner.start_phase(state.phase)
        self.save()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def _not_finite(self, when: str) -> InputError:
        return InputError(
            f"{self.folder or 'training'}: the loss was not finite {when}; look for implausible values in the data "
            "(neurodyn inspect), and check the simulator that they come from (neurodyn check)"
        )

    def _terms(self) -> dict[str, str]:
        """Return the settings that must be equal on all ranks, as text by name."""
        if self._record is None:  # a training within another one
            return {}
        plain = {name: value for name, value in to_dict(self._record).items() if name != "data"}
        return {"--out": str(self.folder), "data": str(self._data), "step": str(self.state.step), **_flat(plain)}

    def _judge(self, fault: str) -> Verdict:
        """Return whether the model is usable; `fault` is the first one found by the guard."""
        state, judgements = self.state, self.learner.verdicts(self.state)
        if self.budget.steps is None:
            judgements.append(verdicts.of_steps(state.step, self.learner.least_steps))
        if self._validate_first and self._validations and state.broken < 1.0:
            adapted = isinstance(getattr(self._record, "base", None), str)
            judgements.append(verdicts.of_best_step(state.best_step, state.step, adapted=adapted))
        if state.first is not None and state.last is not None and self._has_diverged(state.first, state.last):
            judgements.append(
                verdicts.of_divergence(state.first, state.last, state.best_step, best=not self._keep_last)
            )
        judgements.append(verdicts.of_rollouts(state.broken))
        judgements.append(verdicts.of_skipped(state.skipped, state.step, f" ({fault})" if fault else ""))
        judgements.append(verdicts.of_left_out(state.left_out, fault or "their gradient was not finite"))
        return verdicts.combine_verdicts(judgements)

    def _is_starved(self) -> bool:
        """Return whether other processes used most of the CPU during a CPU training with a budget of wall time."""
        if self.budget.minutes is None or self.budget.clock != "wall" or self.learner.device.type != "cpu":
            return False
        state = self.state
        return state.seconds >= STARVED_SECONDS and state.cpu_seconds <= STARVED_SHARE * state.seconds

    def _has_diverged(self, first: float, last: float) -> bool:
        """Return whether a finite score became not finite, or worse by more than itself."""
        if not math.isfinite(first):
            return False
        if not math.isfinite(last):
            return True
        return self.learner.better(first, last) and abs(last - first) > abs(first)

    def _clock(self) -> None:
        """Add the time of a step: wall time and budget of rank 0, CPU time of all ranks."""
        wall, cpu = time.perf_counter(), time.process_time()
        passed, spent, of_all = current_ranks().clock(wall - self._wall, cpu - self._cpu)
        self.state.seconds += passed
        on_cpu = self.learner.device.type == "cpu"  # beside a GPU the processor waits
        counted = counted_seconds(self.budget.clock if on_cpu or self.budget.clock != "own" else "wall", passed, spent)
        self.state.phase_seconds += counted
        self.state.waited += passed - counted if self.budget.minutes is not None and self.budget.clock == "own" else 0.0
        self.state.cpu_seconds += of_all
        self._wall, self._cpu = wall, cpu

    def _validate(self) -> Validation:
        """Measure the model on rank 0, which keeps the best, and share the result with all ranks."""
        validation, state = current_ranks().agree(self._measure)
        vars(self.state).update(vars(state))
        self._improved |= state.step > 0 and state.best_step == state.step
        for callback in self.callbacks:
            callback.on_validate(self, validation)
        return validation

    def _measure(self) -> tuple[Validation, TrainState]:
        state = self.state
        with watching():  # no notices of the guard: the score shows a breakdown
            validation = self.learner.validate(state)
        state.stale, state.last = state.stale + 1, validation.score
        state.first = validation.score if state.first is None else state.first
        newest = self._keep_last and math.isfinite(validation.score)
        if newest or self._improves(validation):
            state.best, state.broken = validation.score, _broken(validation)
            state.stale, state.best_step = 0, state.step
            self.learner.keep(state)
        return validation, state

    def _improves(self, validation: Validation) -> bool:
        state = self.state
        broken = _broken(validation)
        if state.best is None or broken != state.broken:
            return state.best is None or broken < state.broken
        return self.learner.better(validation.score, state.best)

    def _write(self, validation: Validation | None) -> None:
        values = self.learner.metrics(self, validation)
        if values and self.log is not None:
            self.log.write(self.state.step, **values)

    def _interrupted(self, code: int) -> Interrupted:
        if self.folder is None:
            return Interrupted(code)
        return Interrupted(code, f"{self.folder}: interrupted at step {self.state.step}", resumes=True)


def _broken(validation: Validation) -> float:
    """Return the share of roll-outs that are not finite; all if the score is not."""
    return validation.broken if math.isfinite(validation.score) else 1.0


def other_data(run: Path, what: str = "these differ") -> InputError:
    """Return the error for resuming a run with other data; `what` says how they differ."""
    return InputError(
        f"{run}: --resume needs the data that the run was started with, and {what}; give the same --data, or another "
        "--out"
    )


def has_state(run: Path, name: str = "training") -> bool:
    """Return whether a run directory holds a checkpoint to resume from."""
    return (run / "state" / f"{name}.json").is_file()


def _flat(plain: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested plain data as text by dotted name."""
    flat: dict[str, str] = {}
    for name, value in plain.items():
        inner = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        if isinstance(inner, dict) and inner:
            flat |= _flat({str(key): item for key, item in inner.items()}, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value)
    return flat
