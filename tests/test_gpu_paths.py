# SPDX-License-Identifier: Apache-2.0
"""Hot paths as a GPU would run them, without one: on device `meta`, whose tensors cannot be read.

A step that asks the device for a number, or copies one to it, fails here; and each has a ceiling of launches, which
cost a GPU's time whatever their size.
"""

import functools

import msgspec
import pytest
import torch
from benchmarks._launches import EmptyWindows, LaunchCount, count_launches
from torch import Tensor

import neurodyn
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.dynamics import Control, Dynamics, Environment, HybridDynamics, State, declared_hybrid
from neurodyn.dynamics.neural.model import NEURAL, build_model
from neurodyn.geometry import Ground
from neurodyn.multibody import CONTACT_MODELS, EngineConfig
from neurodyn.nets import EnsembleConfig
from tests.multibody import machines

META = torch.device("meta")
WORLDS = 64


@functools.cache
def _model(name: str) -> Dynamics:
    return neurodyn.load(f"pretrained:{name}").to("meta")


def _state(dynamics: Dynamics) -> State:
    spec = dynamics.spec
    channels = torch.zeros(WORLDS, spec.nx, device=META) if spec.nx else None
    return State(torch.zeros(WORLDS, spec.nq, device=META), torch.zeros(WORLDS, spec.nv, device=META), channels)


def _torque(dynamics: Dynamics, *frames: int) -> Tensor:
    return torch.zeros(WORLDS, *frames, dynamics.spec.nu, device=META)


def _require(found: LaunchCount, ceiling: int) -> None:
    assert not found.copies
    assert 0 < found.launches <= ceiling, found.operators


@pytest.mark.parametrize(
    ("name", "ceiling"), [("pendulum", 45), ("cartpole", 45), ("ant", 50), ("anymal-c", 45), ("cube", 50)]
)
def test_a_neural_step(name: str, ceiling: int) -> None:
    dynamics = _model(name)
    state, torque = _state(dynamics), Control(torque=_torque(dynamics))
    carry = dynamics.begin(state)
    carry, _ = dynamics.step_(carry, state, torque)  # what is made on first use is made
    _require(count_launches(lambda: dynamics.step_(carry, state, torque)), ceiling)


@functools.cache
def _members() -> Dynamics:
    config, spec = NEURAL.read("pretrained:ant")
    return build_model(msgspec.structs.replace(config, members=5), spec).requires_grad_(False).to("meta")


@pytest.mark.parametrize(("together", "ceiling"), [(True, 75), (False, 60)])
def test_a_step_of_members(together: bool, ceiling: int) -> None:
    dynamics = _members()
    state, torque = _state(dynamics), Control(torque=_torque(dynamics))
    carry = dynamics.imagine(state, uncertainty=together)
    carry, _ = dynamics.step_(carry, state, torque)
    _require(count_launches(lambda: dynamics.step_(carry, state, torque)), ceiling)


@pytest.mark.parametrize(("penalty", "ceiling"), [(0.0, 115), (1.0, 130)])
def test_a_policy_in_members(penalty: float, ceiling: int) -> None:
    _require(_steps(_environment("ant-run", _members(), penalty=penalty)), ceiling)


@pytest.mark.parametrize("name", ["cartpole", "ant"])
def test_a_neural_roll_out(name: str) -> None:
    dynamics = _model(name)
    state, torques = _state(dynamics), _torque(dynamics, 4)
    dynamics.rollout(state, torques)
    _require(count_launches(lambda: dynamics.rollout(state, torques)), 4 * 50 + 10)


def test_a_neural_step_in_another_environment() -> None:
    dynamics = _model("ant")
    own = dynamics.resolve_environment(None)
    assert own.ground is not None
    pose = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]).expand(WORLDS, 7)
    environment = Environment(gravity=torch.tensor([0.0, 0.0, -9.81]), ground=own.ground.at_pose(pose))
    state, torque = _state(dynamics), Control(torque=_torque(dynamics))
    carry = dynamics.begin(state, environment)
    _require(count_launches(lambda: dynamics.step_(carry, state, torque)), 65)


@pytest.mark.parametrize("name", ["cartpole", "ant"])
def test_a_reset_of_some_worlds(name: str) -> None:
    dynamics = _model(name)
    state, mask = _state(dynamics), torch.zeros(WORLDS, dtype=torch.bool, device=META)
    carry = dynamics.begin(state)
    assert not count_launches(lambda: dynamics.reset(carry, state, mask)).copies


def _hybrid(contact: str | None, *shapes: Plane | Box, free: tuple[str, ...] = ()) -> HybridDynamics:
    mechanism = machines.hopper()
    scene = Scene(shapes=shapes) if shapes else None
    config = EngineConfig(substeps=2, contact=contact)
    dynamics = HybridDynamics(machines.spec(mechanism, ("knee",)), mechanism, config, scene=scene)
    return dynamics.freeing(free).to("meta")


@pytest.mark.parametrize("contact", [None, *CONTACT_MODELS])
def test_a_hybrid_step_and_roll_out(contact: str | None) -> None:
    dynamics = _hybrid(contact, *([Plane()] if contact else []))
    state, torques = _state(dynamics), _torque(dynamics, 8)
    with torch.no_grad():
        dynamics.rollout(state, torques)
        found = count_launches(lambda: dynamics.rollout(state, torques))
        carry = dynamics.begin(state)
        step = count_launches(lambda: dynamics.step_(carry, state, Control(torque=torques[:, 0])))
    assert found.operators["rollout"] == 1  # the loop over time is within
    _require(found, 15)
    _require(step, 15)


def test_a_hybrid_step_of_worlds_that_differ() -> None:
    dynamics = _hybrid("force", Plane(), free=("knee.damping",))
    around = Environment(parameters={"knee.damping": torch.ones(WORLDS, device=META)})
    state, torque = _state(dynamics), Control(torque=_torque(dynamics))
    with torch.no_grad():
        carry = dynamics.begin(state, around)
        dynamics.step_(carry, state, torque)
        _require(count_launches(lambda: dynamics.step_(carry, state, torque)), 18)


def test_a_hybrid_step_on_other_ground() -> None:
    dynamics = _hybrid("force", Box(half=(1.0, 1.0, 0.1)))
    state = _state(dynamics)
    with torch.no_grad():
        carry = dynamics.begin(state)
        _require(count_launches(lambda: dynamics.step_(carry, state, Control(torque=_torque(dynamics)))), 25)


def _environment(task_name: str, dynamics: Dynamics, starts: object = None, **options: object) -> object:
    pytest.importorskip("rsl_rl")
    from neurodyn.control.starts import SampledStarts
    from neurodyn.policy import PolicyEnvironment
    from neurodyn.tasks import load

    task = load(task_name)
    drawn = SampledStarts(task, 0, device=META) if starts is None else starts
    return PolicyEnvironment(task, dynamics, drawn, WORLDS, **options)  # type: ignore[arg-type]


def _steps(env: object) -> LaunchCount:
    actions = torch.zeros(WORLDS, env.num_actions, device=META)  # type: ignore[attr-defined]
    for _ in range(2):
        env.step(actions)  # type: ignore[attr-defined]
    return count_launches(lambda: env.step(actions))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("task", "model", "ceiling"),
    [
        ("ant-run", "ant", 100),
        ("ant-spin-track", "ant", 110),
        ("ant-run@nerd", "ant", 120),
        ("anymal-forward", "anymal-c", 129),
        ("anymal-forward@nerd", "anymal-c", 142),
        ("cartpole-swingup", "cartpole", 108),
    ],
)
def test_an_environment_step_with_episodes_that_end(task: str, model: str, ceiling: int) -> None:
    """Without copies nobody knows whether an episode ended: renewal is part of every step, and is counted."""
    _require(_steps(_environment(task, _model(model))), ceiling)


def test_an_environment_step_of_robots_that_differ() -> None:
    """What is drawn for new episodes, and pushes, delays and noise, take no numbers from the host."""
    from neurodyn.policy.worlds.disturbances import disturbances_of
    from neurodyn.policy.worlds.randomisation import open_randomisation
    from neurodyn.tasks import load

    texts = ("root.mass=+0:5", "hip_1.damping=1|2", "contact.friction=.3:.9:log", "actuator.*.gain=.6:1:one")
    opened = open_randomisation(texts, declared_hybrid("ant"))
    between = ("push.velocity=0:1", "push.interval=1|2", "delay.action=0:.02", "observation.*=+-.01:.01:normal")
    env = _environment(
        "ant-run", opened.dynamics.to("meta"), draws=opened.draws, disturbed=disturbances_of(between, load("ant-run"))
    )
    _require(_steps(env), 225)


@functools.cache
def _world_model() -> Dynamics:
    from neurodyn.dynamics import WorldModel
    from neurodyn.policy.episodes.logs import row_layout
    from neurodyn.tasks import load

    pytest.importorskip("rsl_rl")
    spec = row_layout(load("anymal-velocity")).spec.with_context(4)
    sizes = EnsembleConfig(kind="gru", members=3, trunk="own", width=16, depth=2, head=8)
    model = WorldModel(spec, sizes, terminates=True).requires_grad_(False).to("meta")
    model.fitted = torch.tensor(True)
    return model


def test_a_step_of_a_world_model() -> None:
    model = _world_model()
    window = EmptyWindows(model.spec).draw(WORLDS)
    carry = model.begin(window)
    control = Control(target=_torque(model))
    _require(count_launches(lambda: model.step_(carry, window.present, control)), 75)


def test_a_step_of_imagination() -> None:
    model = _world_model()
    _require(_steps(_environment("anymal-velocity", model, EmptyWindows(model.spec), penalty=1.0, noisy=True)), 210)


def test_ends_of_episodes_are_read_when_they_are_asked_for() -> None:
    """In between they are kept on the device: a policy that asks once in a horizon stalls once in a horizon."""
    env = _environment("ant-run", _model("ant"))
    _steps(env)
    with pytest.raises((RuntimeError, NotImplementedError)):
        env.collect()  # type: ignore[attr-defined]


def test_free_space_is_known_without_a_copy() -> None:
    dynamics = _model("ant")
    state = _state(dynamics)
    carry = dynamics.begin(state, Environment(ground=Ground()))
    _require(count_launches(lambda: dynamics.step_(carry, state, Control(torque=_torque(dynamics)))), 55)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole", "ant"])
def test_a_step_compiles_as_one_graph(name: str) -> None:
    """Nothing in it makes torch's compiler fall back to Python: kernels of Warp are operators to it."""
    dynamics = neurodyn.load(f"pretrained:{name}")
    spec = dynamics.spec
    q = torch.zeros(4, spec.nq)
    if spec.floating:
        q[:, 2], q[:, 6] = 1.0, 1.0
    state, torque = State(q, torch.zeros(4, spec.nv)), torch.ones(4, spec.nu)
    carry = dynamics.begin(state)

    def step(q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        _, after = dynamics.step(carry, State.make_unchecked(q=q, qd=qd), Control.make_unchecked(torque=torque))
        return after.state.q, after.state.qd

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        wanted = step(state.q, state.qd, torque)  # makes what is made on first use
        torch.testing.assert_close(compiled(state.q, state.qd, torque), wanted)
