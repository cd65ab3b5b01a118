# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy online`: policy and model in turns."""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neurodyn.cli.terminal.command import command
from neurodyn.core.config import replaced
from neurodyn.policy.online.settings import OnlineSettings
from neurodyn.policy.requests import OnlineRequest

if TYPE_CHECKING:
    from neurodyn.cli.terminal.console import ProgressBar

_PLACES = {
    "kind": ("reference", "rounds", "frames"),
    "data": (
        "log_frames", "noise", "rollout", "random_share", "parameters", "size", "finetune", "members", "model_minutes",
    ),
    "settings": ("iterations", "worlds", "further", "penalty", "tolerance", "patience", "seed"),
}  # fmt: skip


@command(
    OnlineRequest,
    overriding=OnlineSettings,
    after={name: before for place, names in _PLACES.items() for before, name in pairwise((place, *names))},
)
def online(
    request: OnlineRequest,
    *,
    iterations: int | None = None,
    worlds: int | None = None,
    penalty: float | Literal["auto"] | None = None,
    json: Path | None = None,
    **flags: Any,
) -> None:
    """Train a policy in a model, log it in the simulator or on your robot, fit the model to all data, and again.

    Stops when the returns in model and simulator agree and the last rounds brought no progress.

    Flags:
        iterations: Updates of the policy in the first round; by default those of the task.
        worlds: Worlds in the model that run at once.
        penalty: Weight (lambda) of the model's uncertainty that is subtracted from the reward; auto to let the model
            choose it. By default that of the task's settings.
        json: File for the result as JSON, as OUT/online.json.

    Example:
        neurodyn policy online cartpole-swingup --out runs/online --rounds 3
    """
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.policy.online.loop import frames_of
    from neurodyn.policy.online.loop import online as learn_online
    from neurodyn.policy.online.problem import settings_of
    from neurodyn.policy.online.settings import with_flags

    require_writable(json, text=True)
    policy = {"iterations": iterations, "worlds": worlds, "penalty": penalty}
    settings = with_flags(settings_of(request), policy=policy, **flags)
    with _Stages() as stages:
        result = learn_online(
            replaced(request, settings=settings, stages=stages, report=lambda text: print(text, flush=True))
        )
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    out = Path(request.out)
    frames = f"{result.frames:,} {frames_of(result.reference)}"
    print(f"{frames}, {result.cpu_seconds:.0f} CPU-s; report: {out / 'report.html'}")
    verb = f"evaluate {out / 'policy'} --dynamics" if request.robot is None else f"play {out / 'policy'} --on"
    print(f"next: neurodyn policy {verb} {result.reference}")
    print(f"verdict: {result.verdict}")


class _Stages:
    """A progress bar for each step, one after the other."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __call__(self, title: str) -> "ProgressBar":
        from neurodyn.cli.terminal.console import ProgressBar

        self._open.close()
        return self._open.enter_context(ProgressBar(title))

    def __enter__(self) -> "_Stages":
        return self

    def __exit__(self, *_: Any) -> None:
        self._open.close()
