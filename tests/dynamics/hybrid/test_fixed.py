# SPDX-License-Identifier: Apache-2.0
"""A hybrid step between fixed buffers: the same numbers as the roll-out that gradients flow through."""

import pytest
import torch

from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.hybrid.fixed import HybridFixedFrame
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.solids import solids_of_scene
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines

WORLDS = 3
F64 = torch.float64
MECHANISM = machines.hopper()
SPEC = machines.spec(MECHANISM, ("knee",))
FLAT = Scene(shapes=(Plane(position=(0.0, 0.0, 0.1)),))


@pytest.fixture(scope="module")
def hopper() -> HybridDynamics:
    parameters = select_parameters(nominal(MECHANISM, "force"), ("contact.friction=0.3",))
    config = EngineConfig(substeps=2, contact="force")
    return HybridDynamics(SPEC, MECHANISM, config, parameters, scene=FLAT).requires_grad_(False)


def given(dtype=F64) -> tuple[State, Control, Environment]:
    torch.manual_seed(0)
    q, qd = 0.2 * torch.randn(WORLDS, SPEC.nq, dtype=dtype), torch.randn(WORLDS, SPEC.nv, dtype=dtype)
    q[:, 3:7] = rotation.normalise(torch.randn(WORLDS, 4, dtype=dtype))
    pose = torch.zeros(WORLDS, 7, dtype=dtype)
    pose[:, 2] = torch.linspace(-0.1, 0.1, WORLDS, dtype=dtype)
    pose[:, 3:] = rotation.exponential(0.2 * torch.randn(WORLDS, 3, dtype=dtype))
    environment = Environment(gravity=torch.randn(WORLDS, 3, dtype=dtype), ground=Ground(FLAT, pose))
    return State(q, qd), Control(torque=torch.randn(WORLDS, SPEC.nu, dtype=dtype)), environment


def both(dynamics, state, control, environment) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next states between fixed buffers, and where a gradient is wanted."""
    carry = dynamics.begin(state, environment)
    own = dynamics.step(carry, state, control)[1].state
    tracked = dynamics.step(carry, State(state.q.clone().requires_grad_(), state.qd), control)[1].state
    assert tracked.q.requires_grad
    return torch.cat([own.q, own.qd], -1), torch.cat([tracked.q, tracked.qd], -1).detach()


@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-12), (torch.float32, 1e-5)])
def test_the_same_numbers(hopper, dtype, tolerance):
    state, control, environment = given(dtype)
    seen, expected = both(hopper, state, control, environment)
    torch.testing.assert_close(seen, expected, rtol=tolerance, atol=tolerance)
    in_free_space, expected = both(hopper, state, control, Environment(ground=Ground(Scene())))
    torch.testing.assert_close(in_free_space, expected, rtol=tolerance, atol=tolerance)
    assert not torch.allclose(seen, in_free_space)


def test_values_changed_in_place_are_used(hopper):
    state, control, environment = given()
    before, _ = both(hopper, state, control, environment)
    for change in (
        lambda: hopper.physical.raw.add_(1.0),
        lambda: environment.gravity.add_(5.0),
        lambda: environment.ground.pose[:, 2].add_(0.1),
    ):
        change()
        seen, expected = both(hopper, state, control, environment)
        assert not torch.equal(seen, before)
        torch.testing.assert_close(seen, expected, rtol=1e-12, atol=1e-12)
        before = seen
    hopper.physical.raw.zero_()


def test_a_plane_of_each_world_is_a_plane(hopper):
    """As a simulator's model has it, where every world was built with a ground of its own."""
    state, control, environment = given()
    own = tuple(solids_of_scene(Scene(shapes=(Plane(position=(0.0, 0.0, 0.1 * w)),))) for w in range(WORLDS))
    apart = Environment(gravity=environment.gravity, ground=Ground(own=own))
    assert isinstance(hopper.fixed_frame(WORLDS, apart, state.q), HybridFixedFrame)
    pose = torch.tensor([[0.0, 0.0, 0.1 * w - 0.1, 0.0, 0.0, 0.0, 1.0] for w in range(WORLDS)], dtype=F64)
    together = Environment(gravity=environment.gravity, ground=Ground(FLAT, pose))
    for a, b in zip(both(hopper, state, control, apart), both(hopper, state, control, together), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_on_other_grounds_the_frame_is_the_dynamics_own(hopper):
    state, control, _ = given()
    environment = hopper.resolve_environment(Environment(ground=Ground(Scene(shapes=(Box(half=(1.0, 1.0, 0.2)),)))))
    frame = hopper.fixed_frame(WORLDS, environment, state.q)
    assert not frame.capturable
    frame.q.copy_(state.q)
    frame.qd.copy_(state.qd)
    frame.torque.copy_(control.torque)
    frame.run()
    step = hopper.step(hopper.begin(state, environment), state, control)[1]
    assert torch.equal(frame.q_next, step.state.q)


def test_a_frame_is_moved_to_another_plane_in_place(hopper):
    state, control, environment = given()
    frame = hopper.fixed_frame(WORLDS, environment, state.q)
    lower = Environment(gravity=environment.gravity, ground=environment.ground.at_pose(environment.ground.pose - 0.05))
    assert frame.in_environment(lower) is frame
    for tensor, value in ((frame.q, state.q), (frame.qd, state.qd), (frame.torque, control.torque)):
        tensor.copy_(value)
    frame.run()
    expected = hopper.step(hopper.begin(state, lower), state, control)[1].state
    assert torch.equal(frame.q_next, expected.q)


def test_gradients_of_a_frame_are_those_of_the_rollout_and_of_differences_also_after_a_change(hopper):
    state, control, environment = given()
    carry = hopper.begin(state, environment)
    torque = control.torque

    def after(q, qd, torque):
        found = hopper.step(carry, State.make_unchecked(q=q, qd=qd, channels=None), Control(torque=torque))[1].state
        return found.q, found.qd

    def rolled(q, qd, torque):
        path, _ = hopper._run(carry.environment, State(q, qd), torque[:, None])
        return path.q[:, 1], path.qd[:, 1]

    leaves = [x.clone().requires_grad_() for x in (state.q, state.qd, torque)]
    assert torch.autograd.gradcheck(after, leaves, rtol=1e-5, atol=1e-7)
    towards = [torch.randn_like(state.q), torch.randn_like(state.qd)]

    def same() -> None:
        found, expected = (torch.autograd.grad(run(*leaves), leaves, towards) for run in (after, rolled))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    same()
    before = after(*leaves)[1]
    hopper.physical.raw += 0.5
    assert not torch.allclose(after(*leaves)[1], before), "a value that was kept shall be read anew"
    same()
    hopper.physical.raw -= 0.5
    (alone,) = torch.autograd.grad(after(*leaves)[1].sum(), leaves[2])  # of the velocities and by torques only
    torch.testing.assert_close(alone, torch.autograd.grad(rolled(*leaves)[1].sum(), leaves[2])[0])
