# SPDX-License-Identifier: Apache-2.0
"""Variants of fitting a model to a policy's logs, so that the policy's return in it matches the simulator's.

Takes a finished loop of `neurodyn policy online` with neural dynamics, or the folder of a task in a loop of several.
Each variant refits the last model to all data of the loop, including the last policy's log, in equal CPU time, and the
last policy is evaluated in the result; the variant "calibrated" has not seen its log. No ratio of times is claimed: the
figures are returns in the model and in the log, their difference, the error of the velocity change over one frame on
the last log, relative to the change, and the mean difference of the base's forward speed from the log 64 frames after
logged states of the policy [m/s]. With --updates the last policy is trained on in each refit, in roll-outs of --branch
frames from logged states, and the result is evaluated there and in the reference.

    python benchmarks/refits.py loops/ant --variants absolute squared
    python benchmarks/refits.py loops/ant/ant-run --variants before squared closed-loop calibrated --updates 40
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.control.resolve import ResolvedDynamics, open_dynamics
from neurodyn.core.artifacts import read_json
from neurodyn.core.config import read_plain
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.dynamics import Dynamics, State, load
from neurodyn.learn import finetune
from neurodyn.learn.neural.policy_rollouts import LoggedActor, PolicyRolloutTerm
from neurodyn.learn.neural.settings import PolicyRollouts, load_finetuning
from neurodyn.learn.neural.train import read_run_config
from neurodyn.learn.run_folder import open_mixture
from neurodyn.policy import load_policy
from neurodyn.policy.episodes.evaluation import SEED, play
from neurodyn.policy.learners.learner import initial_policy
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.online_learning.refit import logged_actor
from neurodyn.policy.online_learning.rounds import ModelOfRound
from neurodyn.policy.online_learning.settings import SHORT
from neurodyn.policy.settings import load_settings as load_policy_settings
from neurodyn.robots import load as load_robot
from neurodyn.robots.data import open_robot_data
from neurodyn.tasks import Task
from neurodyn.tasks import load as load_task

VARIANTS: dict[str, dict[str, Any]] = {
    "before": {},
    "absolute": {"loss": "absolute", "balance": 0.01},
    "absolute-equal": {"loss": "absolute", "balance": None},
    "squared": {"loss": "squared", "balance": None},
    "squared-best": {"loss": "squared", "balance": None, "keep": "best"},
    "squared-one-frame": {"loss": "squared", "balance": None, "forecast": 0},
    "squared-far": {"loss": "squared", "balance": None, "forecast": 24},
    "closed-loop": {"loss": "squared", "balance": None},
    "calibrated": {},
}
"""Refits by what differs from the robot's settings; `forecast` of the last phase. "closed-loop" adds roll-outs of all
logged policies to the windows. "calibrated" is the copy in which the loop judges the last policy: of the last model, by
the logs of the policies before."""
RANDOM, LAST, TASK_SHARE = 0.3, 0.5, 0.25
"""Shares of the initial data, of the last log among the logs, and of the task's starts in roll-outs, as in the loop."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("loop", type=Path, help="folder of the loop")
    parser.add_argument("--variants", nargs="+", default=["before", "absolute", "squared"], choices=[*VARIANTS])
    parser.add_argument("--minutes", type=float, default=3.0, help="CPU time of each refit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("refits"), help="folder of the models")
    parser.add_argument("--updates", type=int, default=0, help="of the last policy in each refit")
    parser.add_argument("--branch", type=int, nargs="+", default=[SHORT], help="frames of the roll-outs of updates")
    arguments = parser.parse_args()
    single_thread()
    loop = read_json(arguments.loop / "online.json")
    task, last = load_task(loop["task"]), loop["rounds"][-1]
    figures = {"return_in_simulator": float(last["log"]["returns"]["return"])}
    for name in arguments.variants:
        run = last["model"]["run"]
        if name != "before":
            run = str(arguments.keep / name)
            refit(arguments, task, name, loop, run)
        found = measure(task, run, last["policy"]["folder"], last["log"]["path"])
        for branch in arguments.branch if arguments.updates else ():
            found |= further_policy(arguments, task, name, loop, run, branch)
        both = found["return"], figures["return_in_simulator"]
        apart = abs(both[0] - both[1]) / max(*map(abs, both), 1e-9)
        figures |= {f"{name}_{what}": value for what, value in {**found, "apart": apart}.items()}
        print(f"{name:18} " + "  ".join(f"{what} {value:.4g}" for what, value in {**found, "apart": apart}.items()))
    write_result(arguments.json, "refits", figures, {})


def refit(arguments: argparse.Namespace, task: Task, name: str, loop: dict[str, Any], run: str) -> None:
    """Refit the last model to all data of the loop, unless done."""
    if Path(run, "model").exists():
        return
    changes = dict(VARIANTS[name])
    keep, forecast = changes.pop("keep", "last"), changes.pop("forecast", None)
    calibrated, closed_loop = name == "calibrated", name == "closed-loop"
    rounds = loop["rounds"][:-1] if calibrated else loop["rounds"]
    data, shares = data_of(arguments.loop, rounds)
    before = loop["rounds"][-1]["model"]["run"]
    known = load_finetuning("finetune", read_run_config(before).settings.net, load_robot(task.robot))
    known = msgspec.structs.replace(known, minutes=arguments.minutes, steps=None, clock="cpu", seed=arguments.seed)
    settings = known.with_rollouts_in_training() if closed_loop else known.with_windows_alone()
    if calibrated:
        settings = known.with_rollouts_alone()
    require(settings is not None, f"{task.robot}: its settings have no policy_rollouts")
    assert settings is not None
    phases = [msgspec.structs.replace(phase, **changes) for phase in settings.phases]
    if forecast is not None:
        phases[-1] = msgspec.structs.replace(phases[-1], forecast=forecast)
    settings = msgspec.structs.replace(settings, phases=tuple(phases), keep=keep)
    chosen = rounds if calibrated or closed_loop else []
    actors = [logged_actor(task, one["log"]["path"], one["policy"]["folder"]) for one in chosen]
    finetune(before, data, run, size=settings, shares=shares, actors=actors)


def data_of(loop: Path, rounds: Sequence[dict[str, Any]]) -> tuple[list[str], list[float]]:
    """Return the files of a loop after some rounds, and their shares in training."""
    first, logs = read_plain(loop / "config.yaml")["data"], [one["log"]["path"] for one in rounds]
    last = LAST if len(logs) > 1 else 1.0
    of_logs = [(1 - last) / max(1, len(logs) - 1)] * (len(logs) - 1) + [last]
    return [*first, *logs], [*([RANDOM / len(first)] * len(first)), *((1 - RANDOM) * share for share in of_logs)]


def further_policy(
    arguments: argparse.Namespace, task: Task, name: str, loop: dict[str, Any], run: str, branch: int
) -> dict[str, float]:
    """Train the last policy on in a model, and return what it returns there and in the reference."""
    out, before = arguments.keep / f"{name}-policy-{branch}", loop["rounds"][-1]["policy"]["folder"]
    data, shares = data_of(arguments.loop, loop["rounds"])
    robot = task.declaration()
    mixture = open_mixture(data, shares, lambda path, /, *, memory: open_robot_data(robot, str(path)))
    model = ModelOfRound(run, load(run), mixture)
    if not (out / "policy.safetensors").exists():
        settings = msgspec.structs.replace(
            load_policy_settings(task.name), iterations=arguments.updates, frames=branch, seed=arguments.seed, threads=1
        )
        initial, settings = initial_policy(task, before, settings)
        starts = model.mixed_starts(task, arguments.seed, TASK_SHARE)
        train_policy(task, model, out, settings, initial=initial, training_starts=starts, logger="none")
    _, network = load_policy(out)
    places = {"there": model, "in_reference": open_dynamics(task, loop["reference"])}
    returns = {
        place: play(network, task, one.dynamics, one.starts(task, SEED), 128, seed=SEED).returns_in(place).mean
        for place, one in places.items()
    }
    return {f"updated_{branch}_{place}": value for place, value in returns.items()}


def measure(task: Task, run: str, policy: str, path: str) -> dict[str, float]:
    """Return the policy's return in a model, and the model's one-frame and long-horizon errors on its log."""
    model, log = load(run), Store.open(path)
    where, (_, network) = ResolvedDynamics(run, model), load_policy(policy)
    played = play(network, task, model, where.starts(task, SEED), 128, seed=SEED)
    state, after = _frames(log)
    predicted = model.rollout(State(*state[:2]), state[2][:, None])
    require(bool(predicted.qd.isfinite().all()), f"{run}: a frame is not finite")
    error = (predicted.qd[:, -1] - after).square().mean(0) / (after - state[1]).square().mean(0)
    return {
        "return": played.returns_in(run).mean,
        "one_frame": float(error.sqrt().mean()),
        "drift": drift(model, log, logged_actor(task, path, policy)),
    }


def drift(model: Dynamics, log: Store, actor: LoggedActor) -> float:
    """Return the base's excess forward speed over the log, 64 frames after logged states [m/s]."""
    frames = PolicyRollouts(worlds=1000)
    term = PolicyRolloutTerm(model, Mixture.of([log], None, [actor.log]), [actor], frames, 0, torch.device("cpu"))
    term.draw()
    with torch.no_grad():
        state, logged, kept = list(term.roll_out())[-1]
    speed = [model.quantities(one)["base_linear_velocity"][kept, 0] for one in (state, logged)]
    return float((speed[0] - speed[1]).mean())


def _frames(log: Store) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return q, qd and torques of every fifth frame with a successor, and the next qd."""
    spec, rows = log.header.spec, torch.as_tensor(log.frames[:])
    ends = set((torch.as_tensor(log.offsets[1:]) - 1).tolist())
    at = torch.tensor([row for row in range(0, len(rows), 5) if row not in ends])
    q, qd, torque, _ = rows[at].split([spec.nq, spec.nv, spec.nu, rows.shape[1] - spec.nq - spec.nv - spec.nu], dim=1)
    return (q, qd, torque), rows[at + 1, spec.nq : spec.nq + spec.nv]


if __name__ == "__main__":
    main()
