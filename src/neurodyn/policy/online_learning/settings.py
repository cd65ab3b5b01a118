# SPDX-License-Identifier: Apache-2.0
"""Settings of the online loop."""

from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from neurodyn.core.config import Config, from_dict, require_numbers, to_dict
from neurodyn.core.errors import InputError, choices, require
from neurodyn.policy.settings import BEHAVIOURS, PolicySettings, TrainingSettings
from neurodyn.policy.settings import with_flags as policy_with_flags

SHORT = 64
"""Default number of frames of a roll-out in models that learn the motion."""


S = TypeVar("S", bound=TrainingSettings)


class OnlineSettings(Config, Generic[S], frozen=True, kw_only=True):
    """Settings of the online loop, with those of the algorithm that trains policies."""

    budget_fields: ClassVar[tuple[str, ...]] = ("rounds", "patience")

    reference: str = "analytic"
    """Dynamics to log: analytic, or hybrid, which is equivalent but faster if the robot's simulator is MuJoCo."""
    rounds: int = 5
    """Maximum rounds."""
    frames: int = 0
    """Frames of random data for a new model; by default 50,000, for a hybrid model none."""
    first: tuple[str, ...] = ()
    """Initial behaviours; for world models, as in `neurodyn policy log`: random and still by default, only still with a
    correlation; or swing, which makes legs step."""
    log_frames: int = 20_000
    """Logged frames of the policy per round, rounded up to whole episodes."""
    noise: float = 0.3
    """Maximum standard deviation of action noise, in half of the episodes; the others have none."""
    correlation: float = 0.0
    """Correlation of noise, from one frame to the next, in all logs. Smooth commands move a robot that white noise only
    shakes."""
    rollout: int | None = None
    """Frames of a roll-out in the model, from logged states to the critic's value; 0 for whole episodes; by default 64,
    in a hybrid model 0."""
    task_share: float = 0.25
    """Share of short roll-outs that start at the start of episodes."""
    random_share: float = 0.3
    """Share of initial data, random or given, in the training data once there are logs of policies."""
    last_share: float = 0.5
    """Share of the last log, among all logs of policies."""
    further: float = 0.5
    """Policy updates in later rounds, as a fraction of those in the first."""
    stop_when_exploiting: bool = True
    """End rounds early, with the last policy whose imagined return is supported by held-out data or members
    (`policy.trust.support`), after at most the updates of the policy's settings."""
    tolerance: float = 0.05
    """Relative difference up to which returns in model and reference agree, and relative gain above which a round
    counts as progress."""
    patience: int = 2
    """Rounds without progress, the last with agreement, that end the loop."""
    episodes: int = 128
    """Evaluation episodes in the model."""
    size: str | None = None
    """Settings of a new model's training: small, paper, or a file; of a hybrid model, a file for `identify`."""
    finetune: str | None = None
    """Settings of a neural or world model in later rounds, a file."""
    members: int | None = None
    """Networks of a new neural or world model, whose disagreement estimates its uncertainty."""
    model_minutes: float | None = None
    """Time budget of each fit [min]; by default that of its settings."""
    closed_loop: Literal["judge", "train"] = "judge"
    """What learns from roll-outs of the logged policies in a neural model (`policy_rollouts` of its settings): judge, a
    copy that judges policies; train, the model in which policies train."""
    parameters: tuple[str, ...] = ()
    """Quantities of a hybrid model to identify, as in `identify`; NAME=START:LOWER:UPPER."""
    seed: int = 0
    """Seed of all random numbers."""
    policy: S = PolicySettings()  # pyright: ignore[reportAssignmentType]
    """Settings of the policy's training."""
    tasks: dict[str, S] = msgspec.field(default_factory=dict)
    """Those of the policies of all tasks that share the model, by task; empty for one task."""

    def __post_init__(self) -> None:
        counts = ("rounds", "log_frames", "episodes", "patience", "rollout", "members")
        require_numbers(self, above=(*counts, "further", "model_minutes"))
        require(self.correlation < 1, "correlation", self.correlation, "at least 0 and below 1")
        for name in self.first:
            require(name in BEHAVIOURS, "first", name, choices(BEHAVIOURS))
        for name in ("task_share", "random_share", "last_share", "tolerance"):
            require(0 < getattr(self, name) < 1, name, getattr(self, name), "between 0 and 1")

    @property
    def own_kind(self) -> "type[OnlineSettings[S]]":
        """The type from which these settings can be read again."""
        return OnlineSettings[type(self.policy)]


def with_flags(settings: OnlineSettings[S], *, policy: dict[str, Any], **flags: Any) -> OnlineSettings[S]:
    """Return settings with the user's flags, a rollout of 0 meaning none, and with the flags of `policy` training.

    Raises:
        InputError: A value is not valid.
    """
    if flags.get("rollout") == 0:
        flags["rollout"] = None
    plain = {**to_dict(settings), **flags, "policy": to_dict(policy_with_flags(settings.policy, **policy))}
    try:
        return from_dict(plain, settings.own_kind, "online")
    except InputError as error:
        raise InputError(str(error).removeprefix("online: ")) from None
