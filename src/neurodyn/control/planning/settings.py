# SPDX-License-Identifier: Apache-2.0
"""Settings shared by all planners; a planner's own are in its file."""

from pathlib import Path
from typing import Any, TypeVar

from neurodyn.core.config import Config, from_dict, load_preset, require_numbers, to_dict
from neurodyn.core.errors import InputError, require

DEFAULT_PLANNER = "cem"
"""Default planner."""

_PRESETS = Path(__file__).resolve().parent / "presets"


class PlannerSettings(Config, frozen=True):
    """Settings of every planner."""

    horizon: int = 40
    """Planning horizon [frames]."""
    discount: float = 1.0
    """Discount per frame."""
    penalty: float = 0.0
    """Weight of the model's epistemic uncertainty, in the unit of the task's `penalty_scale` (lambda)."""
    caution: float = 0.0
    """Cost of frames never seen (`dynamics.known_inputs`)."""
    correction: float = 0.0
    """Share of the last error over one frame in the running mean that is added to each frame of the model,
    so that a robot rests where it should in spite of the model; 0 for none."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        require(0 <= self.correction <= 1, "correction", self.correction, "from 0 to 1")
        require(self.horizon >= 2, "horizon", self.horizon, "at least 2 frames")
        require(0 < self.discount <= 1, "discount", self.discount, "above 0, at most 1")
        require_numbers(self)
        self.check()

    def check(self) -> None:
        """Raise a ValueError for invalid values of the planner's own settings."""


class SamplingSettings(PlannerSettings, frozen=True):
    """Settings of planners that draw candidates."""

    samples: int = 256
    """Candidates per round."""
    rounds: int = 1
    """Rounds per decision."""
    noise: float = 0.5
    """Standard deviation of the candidates around the plan, relative to the action limit."""
    knot: int = 1
    """Frames between the knots of the noise, which is linear between them; 1 for white noise."""
    first_rounds: int = 4
    """Rounds of the first decision of an episode, which has no previous plan."""

    def check(self) -> None:
        """Raise a ValueError for counts below 1 and invalid noise."""
        require(self.samples >= 2, "samples", self.samples, "at least 2")
        require_numbers(self, above=("rounds", "first_rounds", "knot", "noise"))


S = TypeVar("S", bound=PlannerSettings)


def load_settings(kind: type[S], planner: str, task: str, path: Path | None = None, **flags: Any) -> S:
    """Return settings of a planner from the file `path`, the task's preset, or the defaults, with the user's flags.

    Flags that are None were not given.

    Raises:
        InputError: The file is missing or bad, or a value is not valid or not for this planner.
    """
    settings = load_preset(kind, path, (_PRESETS / f"{planner}-{task.partition('@')[0]}.yaml",)) or kind()
    given = {name: value for name, value in flags.items() if value is not None}
    strange = sorted(given.keys() - set(kind.__struct_fields__))
    if strange:
        raise InputError(
            f"{strange[0]} is not a setting of the planner {planner!r}; it has {', '.join(kind.__struct_fields__)}"
        )
    try:
        return from_dict({**to_dict(settings), **given}, kind, "planner settings")
    except InputError as error:
        raise InputError(str(error).removeprefix("planner settings: ")) from None
