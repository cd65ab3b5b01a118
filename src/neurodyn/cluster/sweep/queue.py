# SPDX-License-Identifier: Apache-2.0
"""The order of a sweep's trials: each setting with all its seeds, what has ended already left out."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from neurodyn.cluster.sweep.space import Values
from neurodyn.cluster.sweep.spec import Plan, Trial
from neurodyn.cluster.sweep.trial import Outcome, outcome_of
from neurodyn.core import artifacts

CHOSEN = "settings.json"
"""The settings that were chosen, in their order: a resumed sweep goes on with them."""

Told = Callable[[int, int, Outcome], None]
"""Called with the trials that have ended, the number of all, and what came of the last."""


class Queue:
    """Trials one after another, and what came of them.

    Attributes:
        outcomes: What came of those that have ended, by the name of their run folder.
        total: Number of all trials.
    """

    def __init__(self, plan: Plan, out: Path, told: Told | None = None) -> None:
        """Take up a sweep where its folder left it.

        Args:
            plan: The sweep.
            out: Its folder.
            told: Called after each trial.
        """
        self.outcomes: dict[str, Outcome] = {}
        self.total = plan.count
        self._plan, self._out, self._told = plan, out, told
        self._waiting: deque[Trial] = deque()
        self._next = 0
        path = out / CHOSEN
        self._chosen: list[Values] = artifacts.read_json(path)["settings"] if path.is_file() else []
        for number, values in enumerate(self._chosen):
            plan.chooser.replay(number, values)
            self._take(number, values)

    def folder_of(self, trial: Trial) -> Path:
        """Return the run folder of a trial."""
        return self._out / "trials" / trial.name

    def pop(self) -> Trial | None:
        """Return the next trial; None where there is none left."""
        while not self._waiting and self._next < self._plan.chooser.count:
            values = self._plan.chooser.choose(self._next)
            self._chosen.append(values)
            artifacts.write_json(self._out / CHOSEN, {"settings": self._chosen})
            self._take(self._next, values)
        return self._waiting.popleft() if self._waiting else None

    def end(self, trial: Trial, outcome: Outcome) -> None:
        """Take note of what came of a trial."""
        self.outcomes[trial.name] = outcome
        if self._told is not None:
            self._told(len(self.outcomes), self.total, outcome)
        self._tell(trial.number)

    def _take(self, number: int, values: Values) -> None:
        """Put the trials of a setting into the queue, but for those that have ended well."""
        self._next = number + 1
        for seed in self._plan.sweep.seeds:
            trial = self._plan.trial(number, seed, values)
            known = outcome_of(self.folder_of(trial))
            if known is None or known.failed:
                self._waiting.append(trial)
            else:
                self.outcomes[trial.name] = known
        self._tell(number)

    def _tell(self, number: int) -> None:
        """Tell who chooses what came of a setting, once all its seeds have ended."""
        found = [outcome for outcome in self.outcomes.values() if outcome.number == number]
        if len(found) < len(self._plan.sweep.seeds):
            return
        scores = [_score(outcome) for outcome in found]
        known = [score for score in scores if score is not None]
        self._plan.chooser.tell(number, sum(known) / len(known) if len(known) == len(scores) else None)


def _score(outcome: Outcome) -> float | None:
    """Return the figure of a trial as something of which less is better; None where it failed."""
    figure = outcome.figure
    if figure is None or figure.value is None:
        return None
    return -figure.value if figure.greater_is_better else figure.value
