# SPDX-License-Identifier: Apache-2.0
"""Returns of policies in the ants of examples/worn_ant.py, and of policies trained in them.

The ants are dynamics here, in plain MuJoCo and without sensor noise. With --log, also the errors of an ant's own
roll-outs from its log's states: the error that noise in these states causes for any model.

    python benchmarks/worn_ants.py --ants ElasticAnt --policies policies/run
    python benchmarks/worn_ants.py --ants ElasticAnt --train policies/there --iterations 180
    python benchmarks/worn_ants.py --ants WornAnt --train policies/sensed-there --observe sensors
    python benchmarks/worn_ants.py --ants ElasticAnt --log elastic.h5 --policies
"""

import argparse
import dataclasses
import runpy
import time
from pathlib import Path
from typing import Any

import msgspec
import mujoco
import numpy as np
import torch
from mujoco.rollout import Rollout
from torch import Tensor

from _common import result_parser, single_thread, write_result
from neurodyn.control import SampledStarts
from neurodyn.data import Split, Store
from neurodyn.dynamics import BaseDynamics
from neurodyn.dynamics.batch import Control, State, Step, Window, present_state
from neurodyn.dynamics.control import frame_command
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import context_of, truth_of
from neurodyn.geometry.rotation import conjugate, rotate
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.ladder.rungs import held_out_windows
from neurodyn.policy.episodes.evaluation import load_policy, play
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import TrainPolicyRequest
from neurodyn.robots import load as load_robot
from neurodyn.tasks import load

ANTS = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "worn_ant.py"))
TASK = "ant-run"


class AntInMujoco(BaseDynamics):
    """An ant of the example; the carry is the full state of each world, springs and motors included."""

    kind = "analytic"

    def __init__(self, name: str) -> None:
        kind = ANTS[name]
        model = mujoco.MjModel.from_xml_string(ANTS["model_text"](kind.wear, kind.stiffness))
        self.robot = load_robot("ant")
        self.spec, self._model = self.robot.spec, model
        self._data, self._runner = mujoco.MjData(model), Rollout(nthread=0)
        joints = [model.joint(joint) for joint in ANTS["JOINTS"]]
        self._q = [1 + int(joint.qposadr[0]) for joint in joints]
        self._v = [1 + model.nq + int(joint.dofadr[0]) for joint in joints]
        self._seen_columns = [*range(1, 8), *range(1 + model.nq, 7 + model.nq), *self._q, *self._v]
        self._substeps = round(self.spec.dt / model.opt.timestep)

    def begin(self, context: State | Window, environment: Any = None) -> np.ndarray:
        """Return the worlds at a state, springs and motors at rest; for a window, as its commands leave them."""
        if isinstance(context, Window):
            return self._after(context)
        state = present_state(context)
        q, qd = state.q.double(), state.qd.double()
        size = mujoco.mj_stateSize(self._model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        full, first = np.zeros((len(q), size)), 1 + self._model.nq
        full[:, 1:8] = q[:, [0, 1, 2, 6, 3, 4, 5]]
        full[:, first : first + 3] = qd[:, :3]
        full[:, first + 3 : first + 6] = rotate(conjugate(q[:, 3:7]), qd[:, 3:6])  # MuJoCo's is in body axes
        full[:, self._q], full[:, self._v] = q[:, 7:], qd[:, 6:]
        return full

    def _after(self, window: Window) -> np.ndarray:
        """Return the worlds after a window, set to its states in every frame."""
        full = self.begin(State(window.q[:, 0], window.qd[:, 0]))
        for frame, torque in enumerate(window.torque.unbind(1)):
            state = State(window.q[:, frame + 1], window.qd[:, frame + 1])
            full, _ = self.step(full, state, Control(torque=torque))
            full[:, self._seen_columns] = self.begin(state)[:, self._seen_columns]
        return full

    def step(self, carry: np.ndarray, state: State, control: Control) -> tuple[np.ndarray, Step]:
        """Advance one frame."""
        torque = frame_command(self.spec, state, control).detach().double().numpy()
        held = np.repeat(torque[:, None], self._substeps, 1)
        full = self._runner.rollout(self._model, self._data, carry, held)[0][:, -1]
        return full, Step(state=self._seen(torch.from_numpy(full), state.q))

    def reset(self, carry: np.ndarray, context: State | Window, mask: Tensor) -> np.ndarray:
        """Restart some worlds."""
        return np.where(mask.numpy().astype(bool)[:, None], self.begin(context), carry)

    def _seen(self, full: Tensor, like: Tensor) -> State:
        first, q = 1 + self._model.nq, full[:, [1, 2, 3, 5, 6, 7, 4]]
        spin = rotate(q[:, 3:7], full[:, first + 3 : first + 6])
        qd = torch.cat([full[:, first : first + 3], spin, full[:, self._v]], -1)
        return State(torch.cat([q, full[:, self._q]], -1).to(like), qd.to(like))


def returned(ant: str, policy: str, episodes: int) -> float:
    """Return the mean return of a policy in an ant."""
    task = load(TASK)
    found = play(load_policy(policy)[1], task, AntInMujoco(ant), SampledStarts(task, seed=7), episodes, seed=7)
    spread = float(found.returns.std()) / episodes**0.5
    failed = float(found.failed.float().mean())
    worst = float(found.returns.sort().values[: max(1, episodes // 10)].mean())
    words = f"{ant}: {policy} returns {float(found.returns.mean()):.0f} ± {spread:.0f}, worst tenth {worst:.0f}"
    print(f"{words}, {failed:.0%} fail")
    return float(found.returns.mean())


def left_by_noise(ant: str, log: Path) -> dict[str, float]:
    """Return the errors of an ant's own roll-outs from the states of its log's test episodes, .17 and 1 s ahead."""
    dynamics, store, settings = AntInMujoco(ant), Store.open(log), AdaptationSettings()
    dt, past = store.header.spec.dt, settings.past if ANTS[ant].stiffness is None else settings.past_of_springs
    windows, frames = held_out_windows(store, Split.TEST, round(past / dt), (1 / 6, 1.0), settings.rollouts_each)
    path = dynamics.rollout(context_of(windows), windows.control)
    groups = RolloutErrors(store.header.spec, path, truth_of(windows)).by_group(frames)
    seconds = [frame * dt for frame in frames]
    print(f"{ant}: its own roll-outs from the states of {log.name} err by {groups} after {seconds} s")
    return {f"{ant}, {name}, {s:.2g} s": x for name, row in groups.items() for s, x in zip(seconds, row, strict=True)}


def train(ant: str, args: argparse.Namespace) -> None:
    """Train a policy in an ant."""
    request = TrainPolicyRequest(
        task=TASK, dynamics="analytic", out=args.train, iterations=args.iterations, seed=args.seed, resume=args.resume,
        observe=args.observe,
    )  # fmt: skip
    job = open_training(request)
    where = dataclasses.replace(job.training_dynamics, dynamics=AntInMujoco(ant))
    train_policy(msgspec.structs.replace(job, training_dynamics=where, reference=None))


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--ants", nargs="+", default=["DeclaredAnt", "WornAnt", "ElasticAnt"])
    parser.add_argument("--policies", nargs="*", default=["pretrained-policy:ant-run"])
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--log", type=Path, help="log of the first ant")
    parser.add_argument("--train", type=Path, help="folder of a policy to train in the first ant")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--observe", help="`sensors`: what a policy with encoders and an IMU sees")
    parser.add_argument("--iterations", type=int, default=180)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    single_thread()
    begun = time.process_time()
    if args.train is not None:
        train(args.ants[0], args)
    policies = [*args.policies, *([] if args.train is None else [str(args.train)])]
    figures = {f"{ant}, {policy}": returned(ant, policy, args.episodes) for ant in args.ants for policy in policies}
    if args.log is not None:
        figures |= left_by_noise(args.ants[0], args.log)
    write_result(args.json, "worn_ants", figures | {"cpu_seconds": time.process_time() - begun}, {})


if __name__ == "__main__":
    main()
