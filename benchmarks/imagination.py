# SPDX-License-Identifier: Apache-2.0
"""Imagination at the sizes of Robotic World Model: policy, world model, reward and storage, and the networks alone.

    python benchmarks/imagination.py --json benchmarks/results/imagination.json
    python benchmarks/imagination.py --trunks --json benchmarks/results/neural_members.json

The second line omits the world models and measures policy environments of the neural ant with members (contact points,
base, task, guard against implausible states): with the standard deviation of all members at every step, as needed for a
penalty, and with one member per world.

The networks' own time is that of the ensemble, the actor and the critic for a frame of all worlds. The peer's rate was
measured with the authors' code on one thread: 14.9 thousand frames per CPU-second.
"""

import contextlib
import io
import itertools
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import torch
from rsl_rl.runners import OnPolicyRunner

import neurodyn
from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.control import LoggedStarts
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.data import Status, Store, StoreHeader, StoreWriter
from neurodyn.dynamics import NeuralDynamics, WorldModel
from neurodyn.dynamics.batch import present_state
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.model import NEURAL, build_model
from neurodyn.nets import EnsembleConfig
from neurodyn.policy import NetworkSettings, PolicyEnvironment, PolicySettings
from neurodyn.policy.episodes.logs import row_layout
from neurodyn.policy.learners.ppo import PPO
from neurodyn.sim import articulation
from neurodyn.sim.generation import simulated_header
from neurodyn.tasks import Task, load

PEER_RATE = 14_900.0
"""Frames per CPU-second of the authors' code, at 512 and at 8192 worlds."""
WARM_UP = 32
HORIZON = 24
_EPISODES = 64


class Work:
    """A world model, its worlds, and a learner that collects frames from them."""

    def __init__(self, folder: Path, worlds: int, trunk: str, horizon: int = HORIZON) -> None:
        torch.manual_seed(0)
        self.task, self.worlds, self.horizon = load("anymal-velocity"), worlds, horizon
        spec = row_layout(self.task).spec.with_context(WARM_UP)
        sizes = EnsembleConfig(kind="gru", members=5, trunk=trunk, width=256, depth=2, head=128)  # type: ignore[arg-type]
        self.model = WorldModel(spec, sizes, terminates=True).requires_grad_(False)
        self.model.fitted.fill_(True)
        assert self.model.net.logits is not None
        self.model.net.logits.bias[..., -1] = -12.0  # nobody falls, so that episodes end only by time
        self.model.net.mean.weight.normal_(std=1e-3)  # members that disagree
        self.log = _log(folder / "log.h5", self.task)
        self.starts = LoggedStarts(self.log, WARM_UP, 0)
        self.env = PolicyEnvironment(self.task, self.model, self.starts, worlds, penalty=1.0, noisy=True)
        self.env.episode_length_buf = torch.randint(0, self.task.frames, (worlds,))
        settings = PolicySettings(
            worlds=worlds, horizon=horizon, network=NetworkSettings(hidden=(128, 128, 128), initial_std=0.1)
        )
        with contextlib.redirect_stdout(io.StringIO()):
            configuration = settings.runner()
            configuration["algorithm"]["class_name"] = PPO
            self.learner = OnPolicyRunner(self.env, configuration, None, "cpu").alg
        self.observation = self.env.get_observations()
        self.ended = 0
        self.hidden = self.model.begin(self.starts.draw(worlds)).hidden
        self.inputs = torch.randn(1, worlds, self.model.observation.inputs)

    @torch.inference_mode()
    def collect(self) -> None:
        """Act, imagine, reward and store a horizon of frames, as PPO does before an update."""
        for _ in range(self.horizon):
            actions = self.learner.act(self.observation)
            self.observation, reward, done, extras = self.env.step(actions)
            self.learner.process_env_step(self.observation, reward, done, extras)
            self.ended += int(done.sum())
        self.learner.storage.clear()

    @torch.inference_mode()
    def networks(self) -> None:
        """Run ensemble, actor and critic for the same number of frames."""
        net, hidden = self.model.net, self.hidden
        for _ in range(self.horizon):
            self.learner.actor(self.observation, stochastic_output=False)
            self.learner.critic(self.observation)
            top, hidden = net.advance(self.inputs, hidden)
            net.means(self.inputs, top)
            net.log_stds(top)
            net.event_logits(top)


def _log(path: Path, task: Task) -> Store:
    """Return a log of a robot that stands and trembles."""
    layout, rng = row_layout(task), np.random.default_rng(0)
    spec, frames = layout.spec, 200
    nominal = np.array(layout.nominal)

    def noise(*shape: int) -> np.ndarray:
        return 0.01 * rng.standard_normal(shape)

    channel = noise(_EPISODES, frames + 1, spec.nx)
    channel[..., 8] -= 1.0  # gravity points down
    with StoreWriter(path, StoreHeader(spec=spec, source="log")) as writer:
        writer.append(
            nominal + noise(_EPISODES, frames + 1, spec.nq),
            noise(_EPISODES, frames + 1, spec.nv),
            nominal + noise(_EPISODES, frames, spec.nu),
            channel=channel,
            contact=np.ones((_EPISODES, frames + 1, spec.nc)),
            status=Status.COMPLETE,
        )
    return Store.open(path)


def ant(members: int, width: int, base: str) -> NeuralDynamics:
    """Return the neural ant with slightly disagreeing members: at its own width, the trained network plus noise."""
    torch.manual_seed(0)
    (config, spec), trained = NEURAL.read("pretrained:ant"), neurodyn.load("pretrained:ant").state_dict()
    encoding, mechanism = config.encoding, spec.mechanism
    if base != "free":
        encoding = msgspec.structs.replace(encoding, base=Base(kind=base, substeps=4))
        robot = neurodyn.robots.load("ant")
        header = simulated_header(robot, articulation(robot), None, seed=0, simulator={})
        mechanism = header.mechanism
    net = msgspec.structs.replace(config.net, width=width)
    config = msgspec.structs.replace(config, net=net, encoding=encoding, members=members)
    model = build_model(config, msgspec.structs.replace(spec, mechanism=mechanism))
    for name, tensor in model.state_dict().items():
        source = trained.get(name)
        if source is None:
            continue
        if "predictor.net" in name or "predictor.skip" in name:
            source = source.t() if name.endswith("weight") else source[None]
            if source.shape != tensor.shape[1:]:
                continue  # at another width: random
            source = source * (1.0 + 1e-3 * torch.randn(tensor.shape))
        tensor.copy_(source)
    if base == "contact":
        model.predictor.denormaliser.std.mul_(1e-3)  # it has little to correct
    model.state_scale.copy_(torch.tensor([1.0] * model.spec.nq + [5.0] * model.spec.nv))
    return model.requires_grad_(False)


class AntWorlds:
    """Policy environments of the neural ant, with random actions."""

    def __init__(self, model: NeuralDynamics, worlds: int) -> None:
        task = load("ant-run")
        self.worlds, self.actions = worlds, 0.3 * torch.randn(HORIZON, worlds, len(task.actions))
        starts = ResolvedDynamics("ant", model).starts
        self.alone = PolicyEnvironment(task, model, starts(task, 0), worlds, noisy=True)
        self.all = PolicyEnvironment(task, model, starts(task, 0), worlds, noisy=True, penalty=1.0)
        for env in (self.alone, self.all):
            env.episode_length_buf = torch.randint(0, task.frames, (worlds,))

    @torch.inference_mode()
    def step(self, env: PolicyEnvironment) -> None:
        """Step all worlds for a horizon of frames."""
        for actions in self.actions:
            env.step(actions)

    def check(self) -> float:
        """Compare both environments with each world's own member alone; check the penalty."""
        model, worst = self.all.dynamics, 0.0
        for env in (self.alone, self.all):
            for actions in self.actions[:5]:
                before = env.state
                control = env.task.control(actions.clamp(-1, 1), env.now, env.memory)
                carry = model.begin(before, members=env.carry.member, alone=True)  # type: ignore[call-arg]
                wanted = model.step(carry, before, control)[1].state
                found = env.step(actions)[3]["state"]
                worst = max(worst, float((found.qd - wanted.qd).abs().max() / wanted.qd.abs().max()))
        require(worst < 1e-4, f"worlds leave their members by {worst:.1e} of the fastest motion")
        _, step = model.step_(self.all.carry, self.all.state, control)
        require(step.epistemic is not None and bool((step.epistemic.sum(-1) > 0).all()), "members agree on everything")
        return worst


def check(work: Work) -> float:
    """Compare the environment with the model's own roll-out of the same world, and check the penalty."""
    task, model = work.task, work.model
    env = PolicyEnvironment(task, model, LoggedStarts(work.log, WARM_UP, 1), 4, penalty=1.0)
    free = PolicyEnvironment(task, model, LoggedStarts(work.log, WARM_UP, 1), 4)
    context = LoggedStarts(work.log, WARM_UP, 1).draw(4)
    carry, state = model.begin(context), present_state(context)
    worst, penalty = 0.0, 0.0
    for _ in range(20):  # before the first push
        action = 0.1 * torch.randn(4, len(task.actions))
        control = task.control(action, env.now, env.memory)
        carry, step = model.step(carry, state, control)
        state = step.state
        _, punished, _, _ = env.step(action)
        _, reward, _, _ = free.step(action)
        worst = max(worst, float((env.state.q - state.q).abs().max()), float((env.state.qd - state.qd).abs().max()))
        penalty = max(penalty, float((reward - punished).max()))
    require(worst < 1e-5, f"imagined worlds leave the model's own roll-out by {worst:.1e}")
    require(penalty > 0.0, "uncertainty is not subtracted from the reward")
    return worst


def main() -> None:
    """Run the benchmark."""
    parser = result_parser("Imagination beside its networks alone, and beside the authors' rate.")
    parser.add_argument("--worlds", type=int, nargs="+", default=[512])
    parser.add_argument("--trunks", nargs="*", default=["shared", "own"], choices=["shared", "own"])
    parser.add_argument("--members", type=int, default=5, help="members of the neural ant; 0 to leave it out")
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 128], help="of its three hidden layers")
    parser.add_argument("--bases", nargs="+", default=["free", "contact"], choices=["free", "contact"])
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds per piece of work and round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for trunk in options.trunks:
            for worlds in options.worlds:
                work, key = Work(Path(folder), worlds, trunk), f"{trunk}_b{worlds}"
                figures[f"largest_deviation_{key}"] = check(work)
                works = {"imagination": work.collect, "networks": work.networks}
                times = compare(works, seconds=options.seconds, rounds=options.rounds)
                rate = worlds * HORIZON / times["imagination"]
                for name, seconds in times.items():
                    figures[f"{name}_ms_{key}"] = 1e3 * seconds / HORIZON
                figures[f"env_steps_per_cpu_second_{key}"] = rate
                figures[f"ended_episodes_{key}"] = float(work.ended)
                ratios[f"imagination_{trunk}_vs_networks_b{worlds}"] = times["imagination"] / times["networks"]
                if trunk == "shared":
                    ratios[f"imagination_vs_authors_b{worlds}"] = PEER_RATE / rate
    for base, width, worlds in itertools.product(options.bases, options.widths, options.worlds):
        if options.members < 2:
            break
        work, key = AntWorlds(ant(options.members, width, base), worlds), f"{base}_{options.members}x{width}_b{worlds}"
        figures[f"largest_deviation_{key}"] = work.check()
        works = {"all": partial(work.step, work.all), "alone": partial(work.step, work.alone)}
        for name, seconds in compare(works, seconds=options.seconds, rounds=options.rounds).items():
            figures[f"env_steps_per_cpu_second_{name}_{key}"] = worlds * HORIZON / seconds
        ended = work.all.collect()
        figures[f"ended_episodes_{key}"] = float(len(ended.returns))
        figures[f"implausible_ends_{key}"] = float(sum(ended.implausible))
    write_result(options.json, "imagination", figures, ratios)


if __name__ == "__main__":
    main()
