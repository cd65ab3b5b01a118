# SPDX-License-Identifier: Apache-2.0
"""The encoding: its inputs, and predictions that are exact where the network's target is."""

import math

import msgspec
import pytest
import torch
from torch import Tensor

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.coordinates import position_difference, wrap_angle
from neurodyn.dynamics.neural.base_prediction import BasePrediction
from neurodyn.dynamics.neural.encoding import Encoding, EncodingConfig, Limit, count_inputs, fit_encoding
from tests import plant

SPEC = StateSpec(
    robot="probe",
    joints=(
        JointSpec(name="slide", kind="prismatic", lower=-1.0, upper=2.0),
        JointSpec(name="hinge", kind="revolute", lower=-0.5, upper=0.5),
        JointSpec(name="wheel", kind="revolute", continuous=True),
    ),
    controls=("slide", "wheel"),
    dt=0.02,
)


def config(**changes) -> EncodingConfig:
    base = {"invariant": (0,), "limits": (), "kappa": (0.6, 0.5, 1.0), "velocity_products": False}
    return EncodingConfig(**{**base, **changes})


def draw(*shape: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, n, generator=generator, dtype=torch.float64) for n in (3, 3, 2))


def test_inputs_are_plain_positions_sines_velocities_and_torques_in_the_documented_order():
    q, qd, torque = draw(4)
    encoding = Encoding(SPEC, config()).double()
    expected = [torch.sin(q[:, 2]), torch.cos(q[:, 2]), q[:, 1], *qd.unbind(1), *torque.unbind(1)]
    assert torch.equal(encoding.encode(BasePrediction(q, qd), torque), torch.stack(expected, 1))
    assert encoding.inputs == len(expected)


def test_an_invariant_position_is_not_seen():
    q, qd, torque = draw(4)
    encoding = Encoding(SPEC, config()).double()
    moved = q + torch.tensor([5.0, 0.0, 0.0])
    assert torch.equal(
        encoding.encode(BasePrediction(q, qd), torque), encoding.encode(BasePrediction(moved, qd), torque)
    )
    seen = Encoding(SPEC, config(invariant=())).double()
    assert not torch.equal(seen.encode(BasePrediction(q, qd), torque), seen.encode(BasePrediction(moved, qd), torque))


def test_velocity_products_are_all_pairs():
    q, qd, torque = draw(4)
    encoding = Encoding(SPEC, config(velocity_products=True)).double()
    pairs = [qd[:, i] * qd[:, j] for i in range(3) for j in range(i, 3)]
    assert torch.equal(encoding.encode(BasePrediction(q, qd), torque)[:, 6:12], torch.stack(pairs, 1))
    assert encoding.inputs == 14


def test_a_limit_is_seen_as_nearness_penetration_and_penetration_one_frame_ahead():
    limits = (Limit(coordinate=0, bound=2.0, side=1, margin=0.5), Limit(coordinate=0, bound=-1.0, side=-1, margin=0.5))
    encoding = Encoding(SPEC, config(limits=limits)).double()

    def features(position: float, speed: float) -> list[list[float]]:
        q, qd = torch.tensor([[position, 0.0, 0.0]]).double(), torch.tensor([[speed, 0.0, 0.0]]).double()
        upper_lower = encoding.encode(BasePrediction(q, qd), torch.zeros(1, 2).double())[0, 3:9].view(3, 2)
        return upper_lower.t().tolist()

    far, near, inside = [0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.6, 0.1, 0.1]
    assert features(0.0, 0.0) == [far, far]
    assert features(1.6, 0.0)[0] == pytest.approx(near)
    assert features(2.1, 0.0)[0] == pytest.approx(inside)
    assert features(-1.1, 0.0)[1] == pytest.approx(inside)
    # 0.1 away at 10 m/s, a frame of 0.02 s ends 0.1 beyond.
    assert features(1.9, 10.0)[0] == pytest.approx([0.4, 0.0, 0.1])
    assert features(-0.9, -10.0)[1] == pytest.approx([0.4, 0.0, 0.1])
    assert features(1.9, -10.0)[0] == pytest.approx([0.4, 0.0, 0.0])


def test_decoding_the_target_gives_the_next_state():
    q, qd, _ = draw(100)
    q_next, qd_next, _ = (x.flip(0) for x in draw(100))
    encoding = Encoding(SPEC, config()).double()
    reached = encoding.decode(BasePrediction(q, qd), encoding.target(BasePrediction(q, qd), q_next, qd_next))
    reached_q, reached_qd = reached.q, reached.qd
    torch.testing.assert_close(reached_qd, qd_next, rtol=0, atol=1e-12)
    torch.testing.assert_close(reached_q[:, :2], q_next[:, :2], rtol=0, atol=1e-12)
    assert wrap_angle(reached_q[:, 2] - q_next[:, 2]).abs().max() < 1e-12


def test_a_step_across_half_a_turn_is_small_where_the_joint_is_continuous():
    q = torch.tensor([[0.0, 0.0, math.pi - 0.01]])
    q_next = torch.tensor([[0.0, 0.0, -math.pi + 0.01]])
    still = torch.zeros(1, 3)
    target = Encoding(SPEC, config()).target(BasePrediction(q, still), q_next, still)
    assert float(target[0, 5]) == pytest.approx(0.02, abs=1e-6)
    assert position_difference(SPEC, q_next, q)[0].tolist() == pytest.approx([0.0, 0.0, 0.02], abs=1e-6)


def test_a_step_of_a_joint_with_an_end_is_never_wrapped():
    q, q_next = torch.tensor([[0.0, 3.1, 0.0]]), torch.tensor([[0.0, -3.1, 0.0]])
    assert position_difference(SPEC, q_next, q)[0].tolist() == pytest.approx([0.0, -6.2, 0.0])


def test_angles_that_differ_by_turns_look_the_same():
    q, qd, torque = draw(10)
    encoding = Encoding(SPEC, config()).double()
    turned = q + torch.tensor([0.0, 0.0, 4 * math.pi], dtype=torch.float64)
    torch.testing.assert_close(
        encoding.encode(BasePrediction(turned, qd), torque), encoding.encode(BasePrediction(q, qd), torque)
    )


def test_next_state_follows_from_a_zero_output_by_constant_velocity():
    q, qd, _ = draw(3)
    encoding = Encoding(SPEC, config()).double()
    after = encoding.decode(BasePrediction(q, qd), torch.zeros(3, encoding.outputs, dtype=torch.float64))
    torch.testing.assert_close(after.q, q + encoding.dt * qd)
    assert torch.equal(after.qd, qd)


@pytest.mark.parametrize("substeps", [1, 2, 5, 20])
def test_kappa_of_a_semi_implicit_integrator(substeps: int):
    """With qd_k = qd + k a h and q' = q + h sum qd_k, kappa is (n + 1) / (2 n)."""
    _, qd, _ = draw(500)
    acceleration, h = 10 * draw(500)[0].flip(0), SPEC.dt / substeps
    q_change, velocity = torch.zeros_like(qd), qd.clone()
    for _ in range(substeps):
        velocity = velocity + h * acceleration
        q_change = q_change + h * velocity
    encoding = fit_encoding(SPEC, qd, q_change, velocity - qd)
    assert encoding.config.kappa == pytest.approx((substeps + 1) / (2 * substeps) * torch.ones(3).numpy(), rel=1e-6)


def test_a_joint_that_turns_round_between_its_limits_enters_by_sine_and_cosine():
    wide = JointSpec(name="hinge", kind="revolute", lower=-6.3, upper=6.3)
    spec = msgspec.structs.replace(SPEC, joints=(SPEC.joints[0], wide, SPEC.joints[2]))
    q, qd, torque = draw(50)
    none = torch.zeros_like(qd)
    encoding = fit_encoding(spec, qd, none, none, invariant=(0,))
    assert encoding.config.periodic == (1,)
    assert (encoding.angles, encoding.plain) == ([1, 2], [])
    assert encoding.inputs == count_inputs(spec, invariant=(0,))
    turned = q.clone()
    turned[:, 1] += 2 * torch.pi
    near, far = (encoding.encode(encoding.predict_base(x, qd, torque), torque) for x in (q, turned))
    limits = slice(4, 4 + 3 * len(encoding.config.limits))
    for inputs in (near, far):
        inputs[:, limits] = 0.0  # which tell one turn from the other
    assert torch.allclose(near, far, atol=1e-5)
    assert fit_encoding(SPEC, qd, none, none).config.periodic == ()


def test_fitted_limits_are_those_of_the_joints_with_room_for_the_speeds_seen():
    _, qd, _ = draw(5000)
    encoding = fit_encoding(SPEC, 3.0 * qd, torch.zeros(5000, 3), qd, invariant=(0,))
    sides = [(limit.coordinate, limit.side, limit.bound) for limit in encoding.config.limits]
    assert sides == [(0, 1, 2.0), (0, -1, -1.0), (1, 1, 0.5), (1, -1, -0.5)]
    fastest = torch.quantile(3.0 * qd[:, 0].abs().float(), 0.999)
    assert encoding.config.limits[0].margin == pytest.approx(2 * SPEC.dt * float(fastest), rel=1e-5)


def test_the_residual_of_a_smooth_plant_is_far_below_the_position_step():
    """The point of the split: what the network has to predict of the position is nearly nothing."""
    store = plant.make_store()
    q, qd = torch.from_numpy(store.q[:-1]), torch.from_numpy(store.qd[:-1])
    inside = torch.ones(len(store.q) - 1, dtype=torch.bool)
    inside[torch.from_numpy(store.offsets[1:-1]) - 1] = False
    q_next, qd_next = torch.from_numpy(store.q[1:]), torch.from_numpy(store.qd[1:])
    q, qd, q_next, qd_next = q[inside], qd[inside], q_next[inside], qd_next[inside]
    dq = position_difference(store.header.spec, q_next, q)
    encoding = fit_encoding(store.header.spec, qd, dq, qd_next - qd)
    assert encoding.config.kappa == pytest.approx([0.6, 0.6], abs=0.01)
    residual = encoding.target(BasePrediction(q, qd), q_next, qd_next)[:, 2:]
    assert (residual.abs().mean(0) < 0.02 * dq.abs().mean(0)).all()
