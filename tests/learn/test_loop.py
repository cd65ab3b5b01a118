# SPDX-License-Identifier: Apache-2.0
"""The loop on its own, with a learner of one weight: budgets, validation, hooks and checkpoints."""

import dataclasses
import json
import math
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from neurodyn.core.artifacts import read_tree, write_tree
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.learn.budget import TrainingBudget, TrainState
from neurodyn.learn.learner import GradientLearner, Validation
from neurodyn.learn.loop import MOST_REFUSED, Callback, TrainingLoop
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.optimiser import build_optimiser, trainable
from tests.learn.callbacks import SignalAt, StopAt, Stopped


class One(GradientLearner):
    """A weight that is to be 3; the loss of some steps is not finite."""

    def __init__(self, bad: tuple[int, ...] = (), scores: dict[int, float] | None = None) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.bad, self.scores = bad, scores
        self.draws, self.kept, self.entered, self.ended = 0, [], [], 0

    def start_phase(self, phase: int) -> None:
        self.entered.append(phase)
        self.set_optimiser(build_optimiser("adam", trainable([self.weight], 0.1)))

    def draw(self) -> None:
        self.draws += 1

    def loss(self) -> Tensor:
        return (self.weight - 3.0).square() * (math.nan if self.draws in self.bad else 1.0)

    def validate(self, train_state: TrainState) -> Validation:
        score = (self.weight - 3.0).abs().item() if self.scores is None else self.scores.get(train_state.step, 9.0)
        return Validation(score, {"weight": self.weight.item()}, f"{score:.3g}")

    def keep(self, train_state: TrainState) -> None:
        self.kept.append(train_state.step)

    def finish(self, train_state: TrainState) -> None:
        self.ended += 1

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight.detach(), "optimiser": self._optimiser.state_dict(), "draws": self.draws}

    def load(self, saved: dict[str, Any]) -> None:
        with torch.no_grad():
            self.weight.copy_(saved["weight"])
        self._optimiser.load_state_dict(saved["optimiser"])
        self.draws = saved["draws"]


def test_it_trains_to_the_end_of_its_steps_phase_by_phase():
    learner = One()
    end = TrainingLoop(learner, TrainingBudget(90, shares=(1.0, 2.0))).run()
    assert (end.step, end.phase, end.phase_step, end.skipped) == (90, 2, 60, 0)
    assert learner.entered == [0, 1]
    assert learner.ended == 1
    assert learner.weight.item() == pytest.approx(3.0, abs=0.2)


def test_phases_that_may_be_left_out_do_not_count_as_progress_before_they_begin(tmp_path: Path):
    class Content(One):
        def end_phase(self, loop: TrainingLoop) -> bool:
            return loop.state.phase == 1

        def text(self, loop: TrainingLoop, validation: Validation | None) -> str:
            return ""

    budget, shown = TrainingBudget(110, shares=(40.0, 30.0, 40.0), as_needed=True), []
    bar = SimpleNamespace(update=lambda done, text: shown.append(done))
    end = TrainingLoop(Content(), budget, tmp_path, progress=bar).run()
    assert (end.step, end.phase) == (70, 3)
    assert [shown[39], shown[40], shown[69]] == pytest.approx([1.0, 41 / 70, 1.0])
    again = TrainingLoop(Content(), budget, tmp_path)
    again.resume()
    assert again.run().step == 70  # what was left out stays out
    longer = TrainingLoop(One(), TrainingBudget(90), tmp_path)
    longer.resume()
    assert longer.run().step == 90


def test_what_is_used_up_first_ends_it():
    assert TrainingLoop(One(), TrainingBudget(steps=10, minutes=10.0)).run().step == 10
    end = TrainingLoop(One(), TrainingBudget(steps=10**9, minutes=0.005)).run()
    assert end.seconds - end.waited == pytest.approx(0.3, abs=0.25)


class Waiting(One):
    """Most of its time belongs to others."""

    def draw(self) -> None:
        super().draw()
        time.sleep(0.01)


def test_minutes_count_what_other_processes_leave():
    end = TrainingLoop(Waiting(), TrainingBudget(minutes=0.1 / 60)).run()
    assert end.phase_seconds == pytest.approx(0.1, abs=0.05)
    assert end.seconds == pytest.approx(0.4, abs=0.15), "at most four times as long"
    assert end.waited == pytest.approx(end.seconds - end.phase_seconds, abs=1e-6)
    alone = TrainingLoop(One(), TrainingBudget(minutes=0.1 / 60)).run()
    assert alone.seconds <= max(1.5 * alone.cpu_seconds, 0.4)


def test_time_beside_a_gpu_is_wall_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Waiting, "device", torch.device("cuda"))
    end = TrainingLoop(Waiting(), TrainingBudget(minutes=0.1 / 60)).run()
    assert (end.seconds, end.waited) == (pytest.approx(0.1, abs=0.05), 0.0)


def test_minutes_can_be_those_of_the_processor():
    end = TrainingLoop(Waiting(), TrainingBudget(minutes=0.2 / 60, clock="cpu")).run()
    assert end.cpu_seconds == pytest.approx(0.2, abs=0.1)
    assert end.seconds > 2 * end.cpu_seconds


@pytest.mark.parametrize(
    ("budget", "share", "starved"),
    [
        (TrainingBudget(minutes=0.2 / 60, clock="wall"), 0.9, True),
        (TrainingBudget(minutes=0.2 / 60, clock="wall"), 0.0, False),  # it had more than that
        (TrainingBudget(minutes=0.02 / 60, clock="cpu"), 0.9, False),
        (TrainingBudget(steps=20), 0.9, False),
    ],
)
def test_a_budget_of_wall_time_that_others_used_is_known(
    budget: TrainingBudget, share: float, starved: bool, monkeypatch: pytest.MonkeyPatch
):
    assert not TrainingLoop(Waiting(), budget).run().starved  # too short to be worth a word
    monkeypatch.setattr("neurodyn.learn.loop.STARVED_SECONDS", 0.1)
    monkeypatch.setattr("neurodyn.learn.loop.STARVED_SHARE", share)
    assert TrainingLoop(Waiting(), budget).run().starved == starved


def test_a_training_on_a_gpu_is_not_starved(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("neurodyn.learn.loop.STARVED_SECONDS", 0.1)
    monkeypatch.setattr(Waiting, "device", torch.device("cuda"))
    assert not TrainingLoop(Waiting(), TrainingBudget(minutes=0.2 / 60, clock="wall")).run().starved


def test_steps_with_gradients_that_are_not_finite_are_left_out_and_counted():
    learner = One(bad=(2, 5))
    end = TrainingLoop(learner, TrainingBudget(6)).run()
    assert (end.step, end.skipped) == (6, 2)
    assert torch.isfinite(learner.weight).all()


def test_the_best_is_kept_and_patience_ends_a_phase(tmp_path: Path):
    learner = One(scores={0: 5.0, 2: 4.0, 4: 4.5, 6: 3.0})
    loop = TrainingLoop(learner, TrainingBudget(40), tmp_path, validations=20, patience=3)
    end = loop.run()
    assert learner.kept == [0, 2, 6]
    assert (end.best, end.step) == (3.0, 12)
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [0, 2, 4, 6, 8, 10, 12, 12]
    assert lines[0]["loss"] is None
    assert lines[-1]["finished"] is True


def test_the_last_is_kept_where_that_is_asked_for():
    learner = One(scores={0: 2.0, 10: 3.0, 20: 1.0, 30: 5.0, 40: math.nan})
    end = TrainingLoop(learner, TrainingBudget(40), validations=4, keep_last=True).run()
    assert (learner.kept, end.best_step) == ([0, 10, 20, 30], 30)  # not one that broke down
    assert end.verdict.startswith("fails: the training diverged")


def test_hooks_see_steps_validations_and_checkpoints(tmp_path: Path):
    class Seen(Callback):
        def __init__(self) -> None:
            self.found: list[str] = []

        def on_step(self, loop: TrainingLoop) -> None:
            self.found.append(f"step {loop.state.step}")
            assert float(loop.last.loss) > 0

        def on_validate(self, loop: TrainingLoop, validation: Validation) -> None:
            assert validation.score == loop.state.best
            self.found.append("validation")

        def on_save(self, loop: TrainingLoop) -> None:
            self.found.append("save")

    seen = Seen()
    TrainingLoop(One(), TrainingBudget(4), tmp_path, validations=2, callbacks=[seen]).run()
    assert seen.found == [
        "validation", "step 1", "validation", "save", "step 2", "step 3", "validation", "save", "step 4", "save",
    ]  # fmt: skip
    assert read_tree(tmp_path / "state", "training", best=True)["position"]["step"] == 4


@pytest.mark.parametrize("step", [1, 10, 17, 30])
def test_it_continues_where_it_was_saved(step: int, tmp_path: Path):
    def loop(learner: One, name: str, callbacks: tuple[Callback, ...] = ()) -> TrainingLoop:
        budget = TrainingBudget(30, shares=(1.0, 2.0))
        return TrainingLoop(learner, budget, tmp_path / name, validations=6, callbacks=callbacks)

    whole = One()
    loop(whole, "whole").run()
    with pytest.raises(Stopped):
        loop(One(), "part", (StopAt(step),)).run()
    part = One()
    resumed = loop(part, "part")
    resumed.resume()
    resumed.run()
    assert torch.equal(part.weight, whole.weight)
    kept = [[(line["step"], line.get("weight")) for line in read_metrics(tmp_path / n)] for n in ("whole", "part")]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_between_two_steps(number: signal.Signals, tmp_path: Path):
    with pytest.raises(Interrupted) as caught:
        TrainingLoop(One(), TrainingBudget(9), tmp_path, callbacks=[SignalAt(4, number)]).run()
    assert caught.value.code == 128 + number
    assert read_tree(tmp_path / "state", "training")["position"]["step"] == 4
    with pytest.raises(Interrupted, match="what was finished is kept"):
        TrainingLoop(One(), TrainingBudget(9), callbacks=[SignalAt(9, number)]).run()


def test_a_training_within_another_one_is_interrupted_with_it(tmp_path: Path):
    class Outer(One):
        def end_phase(self, loop: TrainingLoop) -> bool:
            TrainingLoop(One(), TrainingBudget(9), callbacks=[SignalAt(2, signal.SIGTERM)]).run()
            return False

    with pytest.raises(Interrupted, match="interrupted at step 3; the same command with --resume goes on") as caught:
        TrainingLoop(Outer(), TrainingBudget(3), tmp_path).run()
    assert caught.value.code == 143


def test_a_larger_budget_continues_and_an_equal_one_does_not(tmp_path: Path):
    def resumed(steps: int) -> TrainState:
        loop = TrainingLoop(One(), TrainingBudget(steps), tmp_path, validations=4)
        loop.resume()
        return loop.run()

    TrainingLoop(One(), TrainingBudget(8), tmp_path, validations=4).run()
    assert resumed(8).step == 8
    assert resumed(12).step == 12
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 2, 4, 6, 8, 9, 12, 12]


@pytest.mark.parametrize("stop", [5, 10, 25, 30])
def test_what_a_larger_budget_adds_goes_to_the_phases_that_are_left(stop: int, tmp_path: Path):
    def loop(steps: int, callbacks: tuple[Callback, ...] = ()) -> TrainingLoop:
        return TrainingLoop(One(), TrainingBudget(steps, shares=(1.0, 2.0)), tmp_path, callbacks=callbacks)

    with pytest.raises(Stopped):
        loop(30, (StopAt(stop),)).run()
    resumed = loop(60)
    resumed.resume()
    assert resumed.run().step == 60


def test_a_saved_state_is_read_as_it_was():
    state = TrainState(phase=1, step=9, best=math.inf, last=0.1)
    assert TrainState.read(json.loads(json.dumps(state.plain(), allow_nan=False))) == state


def test_a_state_of_something_else_is_bad_input(tmp_path: Path):
    write_tree(tmp_path / "state", "training", {"position": {"step": 3}})
    with pytest.raises(InputError, match="state does not fit its configuration"):
        TrainingLoop(One(), TrainingBudget(8), tmp_path).resume()


def test_a_loss_that_is_never_finite_ends_the_training_in_one_line(tmp_path):
    loop = TrainingLoop(One(bad=tuple(range(1000))), TrainingBudget(steps=100), tmp_path)
    with pytest.raises(InputError, match=rf"not finite in {MOST_REFUSED} steps in a row, up to step {MOST_REFUSED};"):
        loop.run()
    few = TrainingLoop(One(bad=tuple(range(1000))), TrainingBudget(steps=3))
    with pytest.raises(InputError, match="not finite in any of 3 steps; look for implausible values in the data"):
        few.run()


def test_a_training_recovers_from_some_losses_that_are_not_finite():
    one = One(bad=tuple(range(5, 5 + MOST_REFUSED - 1)))
    assert TrainingLoop(one, TrainingBudget(steps=100)).run().skipped == MOST_REFUSED - 1


class Several(GradientLearner):
    """A weight that is to be the mean of a batch of numbers, some of which are none."""

    def __init__(self, numbers: tuple[float, ...]) -> None:
        self.weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.numbers, self.named = torch.tensor(numbers, dtype=torch.float64), []

    def start_phase(self, phase: int) -> None:
        self.set_optimiser(torch.optim.SGD([self.weight], 0.5))
        self.clip = 100.0

    def draw(self) -> None:
        self._batch = self.numbers

    def windows(self) -> int:
        return len(self._batch)

    def keep_windows(self, rows: Tensor) -> None:
        self._batch = self._batch[rows]

    def report_breakdown(self, row: int) -> None:
        self.named.append(row)

    def loss(self) -> Tensor:
        return (self.weight - self._batch).square().mean()


@pytest.mark.parametrize("bad", [(3,), (0, 7), (1, 2, 3, 4, 5, 6, 7)])
def test_windows_that_break_down_do_not_spoil_the_gradient_of_the_others(bad: tuple[int, ...], tmp_path: Path):
    numbers = tuple(math.nan if i in bad else float(i) for i in range(8))
    learner = Several(numbers)
    end = TrainingLoop(learner, TrainingBudget(1)).run()
    sound = [x for x in numbers if not math.isnan(x)]
    assert learner.weight.item() == pytest.approx(sum(sound) / len(sound))  # one step of SGD at rate 1/2
    assert (end.skipped, end.left_out) == (0, len(bad))
    assert learner.named == [bad[0]]
    assert end.verdict.startswith(f"warning: {len(bad)} windows were left out of their batches")


def test_a_batch_that_is_bad_all_over_is_not_tried_window_by_window():
    class Counting(Several):
        tried = 0

        def loss(self) -> Tensor:
            self.tried += 1
            return super().loss()

    half = Counting(tuple(math.nan if i % 2 else 1.0 for i in range(4096)))
    with pytest.raises(InputError, match="not finite in any of 1 step"):
        TrainingLoop(half, TrainingBudget(1)).run()
    assert half.tried <= 130
    few = Counting(tuple(math.nan if i % 512 == 7 else 1.0 for i in range(4096)))
    end = TrainingLoop(few, TrainingBudget(1)).run()
    assert few.tried <= 131
    assert few.weight.item() == pytest.approx(1.0)  # of sound windows alone
    assert 8 <= end.left_out < 512
    assert few.named
    assert math.isnan(few.numbers[few.named[0]]) or end.left_out > 8


def test_a_batch_without_a_sound_window_is_a_step_left_out():
    end = TrainingLoop(One(bad=(2,)), TrainingBudget(6)).run()
    assert end.verdict.startswith("fails: 1 of 6 steps were left out because their gradient was not finite")
    with pytest.raises(InputError, match="not finite in any of 3 steps"):
        TrainingLoop(Several((math.nan, math.nan)), TrainingBudget(3)).run()


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({0: 5.0, 4: 4.0}, "ok"),
        ({0: 5.0, 4: 6.0}, "warning: step 0 was best"),
        (
            {0: 5.0, 2: 4.0, 4: 11.0},
            "warning: the training diverged: its held-out score went from 5 to 11; the model of step 2 is kept",
        ),
        ({0: 5.0, 2: 6.0, 4: 11.0}, "fails: the training diverged: its held-out score went from 5 to 11; "),
        ({0: 5.0, 2: 4.0, 4: math.nan}, "fails: the training diverged"),
        ({0: math.inf, 2: math.nan, 4: math.inf}, "fails: no held-out roll-out stays finite: the model is not trained"),
        ({0: math.nan, 2: 4.0, 4: 3.0}, "ok"),
    ],
)
def test_a_training_says_whether_its_result_can_be_used(scores: dict[int, float], words: str, tmp_path: Path):
    end = TrainingLoop(One(scores=scores), TrainingBudget(4), tmp_path, validations=2).run()
    assert end.verdict.startswith(words)
    assert read_metrics(tmp_path)[-1]["verdict"] == end.verdict


def test_a_model_with_roll_outs_that_are_not_finite_ranks_last(tmp_path: Path):
    class Breaking(One):
        broken: ClassVar = {0: 0.5, 2: 0.0, 4: 0.25}

        def validate(self, train_state: TrainState) -> Validation:
            return dataclasses.replace(super().validate(train_state), broken=self.broken[train_state.step])

    end = TrainingLoop(Breaking(scores={0: 5.0, 2: 7.0, 4: 1.0}), TrainingBudget(4), tmp_path, validations=2).run()
    assert (end.best_step, end.best, end.broken, end.verdict) == (2, 7.0, 0.0, "ok")
    Breaking.broken = {0: 1.0, 2: 1.0, 4: 0.5}
    late = TrainingLoop(Breaking(scores={0: math.inf, 2: math.inf, 4: 9.0}), TrainingBudget(4), validations=2).run()
    assert late.best_step == 4
    assert late.verdict == "warning: 50% of the held-out roll-outs are not finite; give more data or a larger budget"


def test_a_budget_of_time_must_hold_some_steps():
    end = TrainingLoop(One(), TrainingBudget(minutes=1e-9)).run()
    assert end.verdict.startswith(f"warning: only {end.step} steps fitted into the budget")
