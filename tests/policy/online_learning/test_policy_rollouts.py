# SPDX-License-Identifier: Apache-2.0
"""Roll-outs of logged policies in a model: what is compared, its gradient, and refits that take part in it."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from neurodyn.control.resolve import open_dynamics
from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.artifacts import read_tree
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.learn import finetune, train
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.neural.policy_rollouts import LEAD, LoggedActor, PolicyRolloutTerm
from neurodyn.learn.neural.settings import Phase, PolicyRollouts, Settings
from neurodyn.learn.neural.train import read_run_config
from neurodyn.nets.networks import NetConfig
from neurodyn.policy.artifact import Behaviour, PolicyNetwork, policy_config, save_policy
from neurodyn.policy.episodes.logs import record_log
from neurodyn.policy.online_learning.refit import PolicyInModel, _cut, logged_actor
from neurodyn.policy.settings import NetworkSettings
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.tasks import load
from tests import plant
from tests.learn.callbacks import StopAt, Stopped

TASK = load("cartpole-swingup")
FRAMES, CUT = 12, 4
EPISODES, LONG = 24, 40


def network(**settings) -> PolicyNetwork:
    """A policy that pushes gently, and otherwise at each state."""
    torch.manual_seed(3)
    built = policy_config(TASK, NetworkSettings(hidden=(8,), **settings)).build().requires_grad_(False).eval()
    for p in list(built.layers.parameters())[-2:]:
        p.mul_(0.1)
    return built


@pytest.fixture(scope="module")
def model(trained_run: Path) -> NeuralDynamics:
    return NEURAL.load(trained_run)


def log_of(model: NeuralDynamics, policy: PolicyNetwork, noise: float = 0.3) -> Store:
    """What the policy does in the plant, without noise in the episodes of group 0 and with it in those of group 1."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(EPISODES, 2, generator=generator) * torch.tensor([0.5, 1.0])
    qd = 0.5 * torch.randn(EPISODES, 2, generator=generator)
    group = torch.arange(EPISODES) % 2
    rows = []
    for _ in range(LONG + 1):
        now = model.quantities(State(q, qd))
        action = policy(TASK.observe(now, TASK.begin(now, generator)))
        drawn = noise * torch.randn(EPISODES, 1, generator=generator)
        torque = TASK.control((action + group[:, None] * drawn).clamp(-1, 1), now, TASK.begin(now, generator)).torque
        assert torque is not None
        rows.append(torch.cat([q, qd, torque], -1))
        q, qd = plant.step(q, qd, torque)
    table = episode_table([LONG] * EPISODES, status=Status.COMPLETE, group=group)
    table["split"][-4:] = Split.VALIDATION
    header = StoreHeader(spec=plant.robot().spec, source="log", groups=("policy", "policy with noise"))
    return Store(header, torch.stack(rows, 1).flatten(0, 1).numpy(), table)


def term_of(model: Dynamics, log: Store, actor: LoggedActor, **settings) -> PolicyRolloutTerm:
    mixture = Mixture.of([log], None, [actor.log])
    chosen = PolicyRollouts(**{"frames": FRAMES, "cut": CUT, "worlds": 64, **settings})
    return PolicyRolloutTerm(model, mixture, [actor], chosen, 0, torch.device("cpu"))


def driven_off(model: NeuralDynamics) -> NeuralDynamics:
    """Return a trainable copy whose accelerations are off."""
    twin = copy.deepcopy(model).requires_grad_(True).train()
    with torch.no_grad():
        list(twin.predictor.parameters())[-1].add_(0.4)
    return twin


def trainable(model: NeuralDynamics) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def actor_of(policy: PolicyNetwork, **more) -> LoggedActor:
    return LoggedActor("log.h5", 0, PolicyInModel(TASK, policy), **more)


def far(term: PolicyRolloutTerm, seed: int = 0) -> list[float]:
    """Return the differences from the log at each comparison, for the same roll-outs at every call."""
    term._generator.manual_seed(seed)
    term._samplers[0]._generator.manual_seed(seed)
    term.draw()
    with torch.no_grad():
        return [float(loss) for loss in term.losses()]


def test_the_policy_answers_what_the_model_predicts(model):
    policy = network()
    log, follow = log_of(model, policy), PolicyInModel(TASK, policy)
    term = term_of(model, log, actor_of(policy))
    term.draw()
    windows, state = term._windows, State(term._windows.q[:, LEAD], term._windows.qd[:, LEAD])
    carry = model.begin(state)
    with torch.no_grad():
        for got in follow(model, windows, LEAD, CUT, 0):
            now = model.quantities(state)
            action = policy(TASK.observe(now, TASK.begin(now, torch.Generator())))
            carry, step = model.step(carry, state, TASK.control(action, now, TASK.begin(now, torch.Generator())))
            state = step.state
            torch.testing.assert_close(got.qd, state.qd, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["cartpole-swingup", "anymal-forward"])
def test_what_made_a_log_does_not_differ_from_it(name, tmp_path):
    """ANYmal's policy sees its last action, which it remembers from the frames before a roll-out."""
    pytest.importorskip("newton")
    task, path = load(name), str(tmp_path / "log.h5")
    dynamics = open_dynamics(task, "hybrid").dynamics
    policy = policy_config(task, NetworkSettings(hidden=(8,))).build().requires_grad_(False).eval()
    quiet, noisy = Behaviour("policy", policy, quiet=True), Behaviour("policy with noise", policy)
    record_log(task, dynamics, (quiet, noisy), path, transitions=400, worlds=20, coordinates=True, test=0.0)
    same, noisier = (
        max(far(term_of(dynamics, Store.open(path), LoggedActor(path, group, PolicyInModel(task, policy)))))
        for group in (0, 1)
    )
    assert same < 1e-4
    assert noisier > 10 * same


def test_episodes_with_noise_are_left_out(model):
    policy = network()
    term = term_of(model, log_of(model, policy), actor_of(policy))
    for _ in range(5):
        term.draw()
        windows = term._windows
        now = model.quantities(State(windows.q[:, 3], windows.qd[:, 3]))
        memory = TASK.begin(now, torch.Generator())
        torque = TASK.control(policy(TASK.observe(now, memory)), now, memory).torque
        torch.testing.assert_close(windows.control[:, 3], torque, rtol=1e-4, atol=1e-3)


def test_the_gradient_is_that_of_finite_differences(model):
    twin = driven_off(model).double()
    term = term_of(twin, log_of(model, network()), actor_of(network().double()), frames=CUT)
    far(term)
    term._windows = replace(
        term._windows, q=term._windows.q.double(), qd=term._windows.qd.double(), control=term._windows.control.double()
    )
    weights = trainable(twin)
    found = term.gradients(weights)
    generator = torch.Generator().manual_seed(0)
    for weight, gradient in zip(weights, found, strict=True):
        direction = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        values = []
        for sign in (1.0, -1.0):
            with torch.no_grad():
                weight += sign * 1e-6 * direction
                values.append(float(sum(term.losses(), torch.zeros(()))))
                weight -= sign * 1e-6 * direction
        slope = (values[0] - values[1]) / 2e-6
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-8)
    assert max(float(g.abs().max()) for g in found) > 1e-2


def test_gradients_end_where_worlds_are_compared(model):
    policy = network()
    twin = driven_off(model)
    term = term_of(twin, log_of(model, policy), actor_of(policy))
    far(term)
    last = list(term.losses())
    weights = trainable(twin)
    alone = [torch.autograd.grad(loss, weights, allow_unused=True) for loss in last]  # each has a graph of its own
    for got, *parts in zip(term.gradients(weights), *alone, strict=True):
        torch.testing.assert_close(got, sum(p for p in parts if p is not None))
    assert len(last) == FRAMES // CUT


@pytest.mark.parametrize("kind", [{"recurrent": "lstm", "memory": 4}, {"history": 2, "with_actions": True}], ids=str)
def test_what_a_policy_remembers_is_cut_and_kept(model, kind):
    policy, twin = network(**kind), driven_off(model)
    term = term_of(twin, log_of(model, network()), actor_of(policy))
    far(term)
    assert all(bool(g.isfinite().all()) for g in term.gradients(trainable(twin)))
    follow, windows = PolicyInModel(TASK, policy), term._windows
    with torch.no_grad():
        once, often = (list(follow(model, windows, LEAD, cut, 0)) for cut in (FRAMES, 1))
    torch.testing.assert_close(once[-1].qd, often[-1].qd)


def test_a_model_that_is_driven_off_is_led_back(model):
    policy, twin = network(), driven_off(model)
    log = log_of(model, policy)
    term = term_of(twin, log, actor_of(policy))
    before, right = far(term), far(term_of(model, log, actor_of(policy)))
    assert sum(before) > 5 * sum(right)
    weights = trainable(twin)
    optimiser = torch.optim.Adam(weights, 1e-2)
    for _ in range(30):
        term.draw()
        for weight, gradient in zip(weights, term.gradients(weights), strict=True):
            weight.grad = gradient
        optimiser.step()
    assert sum(far(term)) < 0.2 * sum(before)


def test_worlds_in_implausible_states_continue_from_the_log_and_do_not_count(model):
    policy, twin = network(), driven_off(model)
    log, wild = log_of(model, policy), []

    def follow(dynamics, windows, lead, cut, seed):
        for number, state in enumerate(PolicyInModel(TASK, policy)(dynamics, windows, lead, cut, seed), 1):
            if number == 2:
                qd = state.qd.clone()
                qd[:5] = torch.nan
                state = State.make_unchecked(q=state.q, qd=qd)
            wild.append(state)
            yield state

    term = term_of(twin, log, LoggedActor("log.h5", 0, follow))
    far(term)
    losses = list(term.losses())
    assert len(losses) == FRAMES // CUT
    assert all(bool(loss.isfinite()) for loss in losses)

    class Off(PlausibleBounds):
        """Bounds that one world is outside of."""

        def outside(self, q, qd, channels=None, others=None):
            return torch.arange(len(q)) == 1

    frames = TaskFrames(TASK, model)
    at = frames.begin(State(torch.ones(2, 2), torch.ones(2, 2)), torch.Generator())
    frames.bounds = Off((), (), (), ())
    then = _cut(frames, at, State(torch.zeros(2, 2), torch.zeros(2, 2)))
    assert then.state.q.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_roll_outs_start_where_episodes_do_if_commands_are_not_known(model):
    policy = network()
    log = log_of(model, policy)
    term = term_of(model, log, actor_of(policy, beginnings=True))
    term.draw()
    first = torch.from_numpy(log.frames[log.offsets[:-1]][:, :2])
    assert all(bool((first == q).all(1).any()) for q in term._windows.q[:, 0])
    assert term._windows.q.shape[1] == FRAMES + 1
    assert math.isfinite(far(term)[-1])


@pytest.mark.parametrize(("name", "commanded"), [("anymal-velocity", True), ("ant-run", False)])
def test_tasks_with_commands_are_known(name, commanded, tmp_path):
    config = policy_config(load(name), NetworkSettings(hidden=(8,)))
    save_policy(tmp_path, config, config.build())
    assert logged_actor(load(name), "log.h5", tmp_path).beginnings is commanded


SETTINGS = Settings(
    net=NetConfig(kind="mlp", width=32, depth=2), steps=12, validations=2, validation_rollouts=8, validation_frames=10,
    phases=(
        Phase(share=0.5, rate=1e-3, batch=16),
        Phase(share=0.5, rate=1e-3, batch=16, policy_rollouts=PolicyRollouts(frames=FRAMES, cut=CUT, worlds=16)),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def data(model: NeuralDynamics, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("log") / "log.h5"
    log_of(model, network()).write(path)
    return str(path)


def refit(run: Path, data: str, out: Path, *, follow: bool = True, settings: Settings = SETTINGS, **more) -> None:
    actors = (LoggedActor(data, 0, PolicyInModel(TASK, network())),) if follow else ()
    finetune(run, [data], out, size=settings, actors=actors, logger="none", **more)


@pytest.mark.parametrize("optimiser", ["soap", "adam"])
def test_a_refit_that_is_stopped_resumes_bitwise(trained_run, data, tmp_path, optimiser):
    settings = msgspec.structs.replace(SETTINGS, optimiser=optimiser)
    refit(trained_run, data, tmp_path / "whole", settings=settings)
    with pytest.raises(Stopped):
        refit(trained_run, data, tmp_path / "part", settings=settings, callbacks=(StopAt(9),))
    refit(trained_run, data, tmp_path / "part", settings=settings, resume=True)
    whole, part = (read_tree(tmp_path / name / "state", "training") for name in ("whole", "part"))
    for name, value in whole["model"].items():
        assert torch.equal(value, part["model"][name]), name
    assert read_metrics(tmp_path / "whole")[-2]["policy_rollouts"] > 0
    alone = [read_metrics(tmp_path / name)[-2]["rollout_score"] for name in ("whole", "part")]
    assert alone[0] == alone[1]


@pytest.mark.parametrize(
    ("net", "members"),
    [(NetConfig(kind="mlp", width=16, depth=1), 2), (NetConfig(kind="gru", width=8, depth=1, head=6, warmup=3), 1)],
    ids=["members", "memory"],
)
def test_models_with_members_and_with_a_memory_are_calibrated(net, members, cartpole, data, tmp_path):
    settings = msgspec.structs.replace(SETTINGS, net=net, members=members)
    train(cartpole, data, tmp_path / "run", size=settings, logger="none")
    only = msgspec.structs.replace(settings, phases=SETTINGS.phases[1:], keep="last")
    refit(tmp_path / "run", data, tmp_path / "whole", settings=only)
    with pytest.raises(Stopped):
        refit(tmp_path / "run", data, tmp_path / "part", settings=only, callbacks=(StopAt(5),))
    refit(tmp_path / "run", data, tmp_path / "part", settings=only, resume=True)
    before, whole, part = (NEURAL.load(tmp_path / name).state_dict() for name in ("run", "whole", "part"))
    moved = [name for name, value in whole.items() if not torch.equal(value, before[name])]
    assert moved
    assert all(torch.equal(value, part[name]) for name, value in whole.items())


def test_phases_without_a_policy_are_left_out(trained_run, data, tmp_path):
    refit(trained_run, data, tmp_path / "alone", follow=False)
    assert [phase.policy_rollouts for phase in read_run_config(tmp_path / "alone").settings.phases] == [None]
    only = msgspec.structs.replace(SETTINGS, phases=SETTINGS.phases[1:])
    with pytest.raises(InputError, match="all phases have policy_rollouts"):
        refit(trained_run, data, tmp_path / "none", follow=False, settings=only)
    assert not (tmp_path / "none").exists()
    longer = msgspec.structs.replace(SETTINGS.phases[1], policy_rollouts=PolicyRollouts(frames=LONG, worlds=16))
    with pytest.warns(UserWarning, match=f"no episode without noise has {LONG + LEAD} frames"):
        refit(trained_run, data, tmp_path / "long", settings=msgspec.structs.replace(SETTINGS, phases=(longer,)))


def test_a_log_that_is_no_data_is_refused(model, data):
    mixture, other = Mixture.of([Store.open(data)], None, [data]), replace(actor_of(network()), log="other.h5")
    with pytest.raises(InputError, match=r"other\.h5.*no such data"):
        PolicyRolloutTerm(model, mixture, [other], PolicyRollouts(), 0, torch.device("cpu"))


@pytest.mark.parametrize(
    ("bad", "words"), [({"worlds": 1}, "worlds is 1"), ({"cut": 0}, "cut is 0"), ({"spread": -1.0}, "spread is -1")]
)
def test_bad_settings(bad, words):
    with pytest.raises(ValueError, match=words):
        PolicyRollouts(**bad)
