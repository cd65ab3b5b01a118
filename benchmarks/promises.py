# SPDX-License-Identifier: Apache-2.0
"""What policies promise, beside what they return in robots that no declaration describes.

Each stand-in is a cartpole in plain MuJoCo with undeclared faults: other masses, friction, damping and armature, a weak
and late motor, and in every second one a fault that no model of ours has (a rail that is not level, friction that
grows with the position, a flexible pole). Its log is adapted, a policy trained by SHAC in the model over its posterior,
and the stated interval of the return compared with the mean return of that policy in the stand-in.

With --ant, the worn ant of examples/worn_ant.py instead, by PPO in the adapted model. With --longer, a policy with the
usual number of updates, and one with three times as many: what does the kept policy lose?

    python benchmarks/promises.py --seeds 20 --folder runs/promises
    python benchmarks/promises.py --seeds 4 --longer --folder runs/promises
    python benchmarks/promises.py --ant --longer --folder runs/promises

What is in the folder is not made again.
"""

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.rollout import Rollout
from torch import Tensor

import worn_ants
from _common import result_parser, single_thread, write_result
from neurodyn.control import SampledStarts
from neurodyn.control.task_frames import MeasurementNoise
from neurodyn.dynamics import BaseDynamics
from neurodyn.dynamics.batch import Control, State, Step, Window, present_state
from neurodyn.dynamics.control import frame_command
from neurodyn.identify.run import adapt
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import Behaviour, behaviour, load_policy
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.episodes.logs import record_log
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import TrainPolicyRequest
from neurodyn.policy.trust.judges import read_promise
from neurodyn.robots import load as load_robot
from neurodyn.tasks import Task, load

TASK, SUBSTEPS = "cartpole-swingup", 4
TRANSITIONS, NOISE, UPDATES, EPISODES = 7200, 0.5, 150, 4096
_LONGER = 3
"""Times the usual number of updates of a longer training."""


def model_text(seed: int, dt: float) -> str:
    """Return the MJCF of a cartpole with faults."""
    rng = np.random.default_rng(seed)
    cart, pole, half = rng.uniform(40.0, 75.0), rng.uniform(2.0, 4.0), rng.uniform(0.45, 0.55)
    gain, lag = rng.uniform(0.75, 1.05), rng.uniform(0.0, 0.03)
    friction, damping, swing, armature = rng.uniform((0, 0, 0, 0), (40.0, 80.0, 1.0, 0.05))
    tilt, flexible = 0.0, ""
    if seed % 2:  # a fault that the model does not have
        if seed % 4 == 1:
            tilt = rng.uniform(0.01, 0.03)
        else:
            flexible = (
                f'<joint name="bend" axis="0 1 0" pos="0 0 {half}" stiffness="{rng.uniform(300, 800)}" damping="2"/>'
            )
    inertia = pole * half**2 / 3.0
    rod = f'<inertial pos="0 0 {half}" mass="{pole}" diaginertia="{inertia} {inertia} .01"/>'
    if flexible:
        part = f'mass="{pole / 2}" diaginertia="{inertia / 8} {inertia / 8} .005"'
        rod = f"""<inertial pos="0 0 {half / 2}" {part}/>
          <body>{flexible}<inertial pos="0 0 {1.5 * half}" {part}/></body>"""
    gravity = f"{9.81 * math.sin(tilt)} 0 {-9.81 * math.cos(tilt)}"
    return f"""
<mujoco>
  <compiler angle="radian"/>
  <option timestep="{dt / SUBSTEPS}" gravity="{gravity}" integrator="implicitfast"/>
  <worldbody>
    <body name="cart">
      <joint name="slider" type="slide" axis="1 0 0" damping="{damping}" frictionloss="{friction}"/>
      <inertial pos="0 0 0" mass="{cart}" diaginertia="1.2 1.2 2.1"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0" damping="{swing}" armature="{armature}"/>
        {rod}
      </body>
    </body>
  </worldbody>
  <actuator>
    <general joint="slider" gainprm="{gain}" dyntype="filterexact" dynprm="{max(lag, 1e-3)}"/>
  </actuator>
</mujoco>"""


class CartpoleInMujoco(BaseDynamics):
    """A stand-in; the carry is the full state of each world, with motor and bend."""

    kind = "analytic"

    def __init__(self, seed: int) -> None:
        self.robot = load_robot("cartpole")
        self.spec = self.robot.spec
        self._model = mujoco.MjModel.from_xml_string(model_text(seed, self.spec.dt))
        self._data, self._runner = mujoco.MjData(self._model), Rollout(nthread=0)
        self._size = mujoco.mj_stateSize(self._model, mujoco.mjtState.mjSTATE_FULLPHYSICS)

    def begin(self, context: State | Window, environment: Any = None) -> np.ndarray:
        """Return the worlds at a state, with motor and bend at rest."""
        state = present_state(context)
        full = np.zeros((len(state.q), self._size))
        full[:, 1:3] = state.q.double()
        full[:, 1 + self._model.nq : 3 + self._model.nq] = state.qd.double()
        return full

    def step(self, carry: np.ndarray, state: State, control: Control) -> tuple[np.ndarray, Step]:
        """Advance one frame."""
        torque = frame_command(self.spec, state, control).detach().double().numpy()[:, :1]
        full = self._runner.rollout(self._model, self._data, carry, np.repeat(torque[:, None], SUBSTEPS, 1))[0][:, -1]
        seen = torch.from_numpy(full)
        first = 1 + self._model.nq
        return full, Step(state=State(seen[:, 1:3].to(state.q), seen[:, first : first + 2].to(state.qd)))

    def reset(self, carry: np.ndarray, context: State | Window, mask: Tensor) -> np.ndarray:
        """Restart some worlds."""
        return np.where(mask.numpy().astype(bool)[:, None], self.begin(context), carry)


def behaviours(policy: str, task: Task) -> list[Behaviour]:
    """Return a shipped policy, to which the log adds noise, and random actions."""
    return [Behaviour(policy, load_policy(policy)[1]), behaviour("random", task)]


def trained(dynamics: str, out: Path, updates: int, algorithm: str, task: str, seed: int) -> dict[str, Any]:
    """Train a policy in an adapted model, or read the training, and return its promise and cost.

    Raises:
        RuntimeError: The training promises nothing: nothing was better than the declaration, which has no judges.
    """
    if not (out / "promise.json").is_file():
        shutil.rmtree(out, ignore_errors=True)
        request = TrainPolicyRequest(
            task=task, dynamics=dynamics, out=out, algorithm=algorithm, iterations=updates, seed=seed, reference="none"
        )
        train_policy(open_training(request))
    promise, last = read_promise(out), read_metrics(out)[-1]
    if promise is None:
        raise RuntimeError(f"{out}: promises nothing; {last['verdict']}")
    return {
        "imagined": promise.imagined, "judged": promise.judged, "interval": list(promise.interval),
        "update": promise.update, "of": promise.updates, "train_cpu_s": last["cpu_seconds"],
        "verdict": last["verdict"],
    }  # fmt: skip


def returned(policy: Path, task: Task, robot: BaseDynamics, seed: int, episodes: int) -> dict[str, float]:
    """Return the mean return in the robot, from starts that no other robot has, and its standard error."""
    returns = play(
        load_policy(policy)[1], task, robot, SampledStarts(task, seed=1000 + seed), episodes, seed=1000 + seed
    ).returns
    return {"real": float(returns.mean()), "error": float(returns.std()) / episodes**0.5}


def cartpole(seed: int, folder: Path, updates: int, times: int) -> dict[str, Any]:
    """Return promise and fact of one stand-in, with some times the updates."""
    folder.mkdir(parents=True, exist_ok=True)
    task, robot, log, run = load(TASK), CartpoleInMujoco(seed), folder / "log.h5", folder / "run"
    if not log.is_file():
        record_log(
            task, robot, behaviours("pretrained-policy:cartpole", task), log, transitions=TRANSITIONS, worlds=24,
            noise=NOISE, correlation=0.8, seed=seed, declared=False,
            measurement=MeasurementNoise(0.002, 0.02),
        )  # fmt: skip
    if not (run / "adaptation.json").is_file():
        shutil.rmtree(run, ignore_errors=True)
        adapt("cartpole", log, run, mechanism=True, threads=1)
    adaptation = json.loads((run / "adaptation.json").read_text())
    out = folder / ("policy" if times == 1 else f"policy-{times}")
    found = trained(str(run), out, times * updates, "shac", TASK, seed)
    return {"name": f"cartpole {seed}", "times": times, **found, **returned(out, task, robot, seed, EPISODES),
            "adapt_cpu_s": adaptation["cpu_seconds"], "adapted": adaptation["verdict"]}  # fmt: skip


def ant(folder: Path, updates: int, times: int) -> dict[str, Any]:
    """Return promise and fact of the worn ant, with some times the updates."""
    folder.mkdir(parents=True, exist_ok=True)
    task, robot, log, run = load("ant-run"), worn_ants.AntInMujoco("WornAnt"), folder / "log.h5", folder / "run"
    if not log.is_file():
        record_log(
            task, robot, behaviours("pretrained-policy:ant-run", task), log, transitions=22_000, worlds=60, noise=0.4,
            seed=0, declared=False, measurement=MeasurementNoise(0.002, 0.02),
        )  # fmt: skip
    if not (run / "adaptation.json").is_file():
        shutil.rmtree(run, ignore_errors=True)
        adapt("ant", log, run, mechanism=True, threads=1)
    out = folder / f"policy-{times}"
    found = trained(str(run), out, times * updates, "ppo", "ant-run", 0)
    return {"name": "ant", "times": times, **found, **returned(out, task, robot, times, EPISODES // 4)}


def said(row: dict[str, Any]) -> str:
    """Return a row in words."""
    low, high = row["interval"]
    holds = "holds" if low <= row["real"] <= high else "does not hold"
    return (
        f"{row['name']}, {row['times']} x: imagined {row['imagined']:.0f}, judges {row['judged']:.0f}, interval "
        f"{low:.0f} to {high:.0f} "
        f"{holds} {row['real']:.0f} ± {row['error']:.0f}; update {row['update']} of {row['of']}; {row['verdict']}"
    )


def main() -> None:
    """Measure stand-ins or the ant."""
    parser = result_parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder for logs, models and policies")
    parser.add_argument("--seeds", type=int, default=20, help="number of stand-ins")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--updates", type=int, help="updates of a training")
    parser.add_argument("--ant", action="store_true", help="the worn ant")
    parser.add_argument("--longer", action="store_true", help=f"also with {_LONGER} times the updates")
    args = parser.parse_args()
    single_thread()
    begun, rows, lost = time.process_time(), [], []
    seeds = [0] if args.ant else range(args.first, args.first + args.seeds)
    for seed in seeds:
        for times in (1, _LONGER) if args.longer else (1,):
            try:
                if args.ant:
                    rows.append(ant(args.folder / "ant", args.updates or 200, times))
                else:
                    rows.append(cartpole(seed, args.folder / f"{seed:02d}", args.updates or UPDATES, times))
            except RuntimeError as error:
                print(error, flush=True)
                break
            print(said(rows[-1]), flush=True)
        if args.longer and rows and rows[-1]["times"] == _LONGER:
            lost.append(1.0 - rows[-1]["real"] / rows[-2]["real"])
    held = [low <= row["real"] <= high for row in rows for low, high in [row["interval"]]]
    print(f"the interval holds the return of {sum(held)} of {len(held)}")
    figures = {"held": float(sum(held)), "of": float(len(held)), "cpu_seconds": time.process_time() - begun}
    if lost:
        print(f"{_LONGER} times the updates lose " + ", ".join(f"{one:.1%}" for one in lost))
        figures |= {"most lost": max(lost)}
    for row in rows:
        low, high = row["interval"]
        name, real = f"{row['name']}, {row['times']} x", row["real"]
        figures[f"{name}, real"] = real
        figures[f"{name}, imagined / real - 1"] = row["imagined"] / real - 1.0
        figures[f"{name}, half width / real"] = 0.5 * (high - low) / abs(real)
    write_result(args.json, "promises", figures, {})


if __name__ == "__main__":
    main()
