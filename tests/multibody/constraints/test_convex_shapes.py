# SPDX-License-Identifier: Apache-2.0
"""Pairs of shapes that a search compares: the step is MuJoCo's, and its derivatives are those of differences."""

import mujoco
import numpy as np
import pytest
import torch

from tests.multibody.differences import along, off_quaternions
from tests.multibody.mujoco_models import EXACT, Stepper, engine, mechanism_of, random_states, stepped

STONE = np.random.default_rng(5).normal(size=(30, 3))
STONE = STONE / np.linalg.norm(STONE, axis=1, keepdims=True) * [0.1, 0.12, 0.08]
SHAPES = {
    "stone": 'type="mesh" mesh="stone"', "egg": 'type="ellipsoid" size=".1 .07 .09"',
    "tin": 'type="cylinder" size=".08 .06"', "brick": 'type="box" size=".1 .07 .05"',
    "stick": 'type="capsule" size=".05 .08"', "ball": 'type="sphere" size=".08"',
}  # fmt: skip
MARGIN = 0.004


def model_of_shapes():
    """Fixed shapes, far from each other, and one of each kind that moves."""
    mesh = " ".join(repr(float(x)) for corner in STONE for x in corner)
    fixed = "".join(
        f'<geom name="fixed {name}" {kind} pos="0 {number} 0" euler="20 30 {40 * number}" contype="2"/>'
        for number, (name, kind) in enumerate(SHAPES.items())
        if name in ("stone", "egg", "tin")
    )
    moving = "".join(
        f'<body name="{name}"><freejoint/><geom name="{name}" {kind} contype="0" conaffinity="2"'
        f' margin="{MARGIN}" gap=".002"/></body>'
        for name, kind in SHAPES.items()
    )
    options = 'ccd_tolerance="1e-12" ccd_iterations="300"'
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep=".002" {EXACT} {options}><flag multiccd="disable"/></option>'
        f'<asset><mesh name="stone" vertex="{mesh}"/></asset><worldbody>{fixed}{moving}</worldbody></mujoco>'
    )


def touching(model, stepper, state, rng):
    """Move every shape that moves until it touches a fixed one, a few millimetres deep."""
    for start in range(0, 42, 7):
        spot, towards, turn = np.array([0, rng.integers(3), 0.0]), rng.normal(size=3), rng.normal(size=4)
        state[start + 3 : start + 7] = torch.from_numpy(turn / np.linalg.norm(turn))
        near, far = 0.0, 0.5
        for _ in range(12):
            middle = 0.5 * (near + far)
            state[start : start + 3] = torch.from_numpy(spot + middle * towards / np.linalg.norm(towards))
            stepper._write(state.numpy())
            mujoco.mj_forward(model, stepper.data)
            inside = model.ngeom - len(SHAPES) + start // 7 in stepper.data.contact.geom[:, 1].tolist()
            inside |= model.ngeom - len(SHAPES) + start // 7 in stepper.data.contact.geom[:, 0].tolist()
            near, far = (middle, far) if inside else (near, middle)
        state[start : start + 3] = torch.from_numpy(
            spot + (near - rng.uniform(0.0, 0.012)) * towards / np.linalg.norm(towards)
        )
    return state


@pytest.fixture(scope="module")
def crowd():
    """Model, its engine, and states in which all kinds of shapes touch each other, or nearly."""
    model = model_of_shapes()
    mechanism = mechanism_of(model)
    kinds = {(one.first.kind, one.second.kind) for one in mechanism.shape_contacts}
    assert len(kinds) == 15
    assert len(mechanism.shape_contacts) == 18
    stepper, rng = Stepper(model), np.random.default_rng(0)
    states = torch.stack([touching(model, stepper, s, rng) for s in random_states(mechanism, 16, 0, 1.0, 0.3)])
    return model, stepper, engine(mechanism, model.opt.timestep), states


def test_a_step_of_convex_shapes_that_touch_is_that_of_mujoco(crowd):
    _, stepper, of, states = crowd
    theirs, pairs = [], 0
    for state in states:
        theirs.append(stepper.step(state))
        pairs += len(stepper.data.contact.dist)
    assert pairs > 75
    change = (torch.stack(theirs) - states)[:, 42:].abs().max()
    errors = (stepped(of, states) - torch.stack(theirs))[:, 42:].abs().reshape(-1, 6).max(1).values / change
    assert errors.median() < 1e-7
    assert errors.max() < 1e-4  # to which MuJoCo finds the normals of round shapes


def test_derivatives_of_convex_shapes_that_touch_are_those_of_differences(crowd):
    *_, of, states = crowd
    weights = torch.from_numpy(np.random.default_rng(2).normal(size=states.shape))
    rng = np.random.default_rng(3)
    ways = [off_quaternions(states, body, rng) for body in range(6)]
    found = []
    for gradient, quotient in along(lambda x: (stepped(of, x) * weights).sum(1), states, *ways):
        found += ((gradient - quotient).abs() / (1 + quotient.abs())).tolist()
    assert len(found) > 40
    assert np.median(found) < 1e-6
    assert np.quantile(found, 0.8) < 1e-4  # close to other edges and corners, differences see those


LYING = {
    "brick": 'type="box" size=".1 .07 .05"', "stick": 'type="capsule" size=".05 .08"',
    "wedge": 'type="mesh" mesh="wedge"', "roller": 'type="cylinder" size=".05 .08"',
    "nut": 'type="mesh" mesh="nut"',
}  # fmt: skip
HALF = 0.05  # of the height of each of them [m]
SLAB = "-.4 -3 -.1  .4 -3 -.1  .4 3 -.1  -.4 3 -.1  -.4 -3 0  .4 -3 0  .4 3 0  -.4 3 0"
RIM = [
    (0.1, 0.0),
    (0.07, 0.06),
    (0.01, 0.09),
    (-0.06, 0.08),
    (-0.09, 0.01),
    (-0.05, -0.07),
    (0.02, -0.08),
    (0.08, -0.05),
]
NUT = "  ".join(f"{x} {y} {z}" for z in (-HALF, HALF) for x, y in RIM)
WEDGE = "-.1 -.06 -.05  .12 -.06 -.05  .12 .06 -.05  -.1 .06 -.05  -.02 0 .09"


@pytest.fixture(scope="module")
def lying():
    """The same of shapes that lie on their sides and edges on a mesh, some beyond its edge."""
    bodies = "".join(
        f'<body name="{name}"><freejoint/><geom {kind} margin=".002" contype="0"/></body>'
        for name, kind in LYING.items()
    )
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep=".002" {EXACT} ccd_tolerance="1e-12"/><asset><mesh name="slab" vertex="{SLAB}"/>'
        f'<mesh name="wedge" vertex="{WEDGE}"/>'
        f'<mesh name="nut" vertex="{NUT}"/></asset><worldbody><geom type="mesh" mesh="slab" conaffinity="0"/>'
        f"{bodies}</worldbody></mujoco>"
    )
    mechanism, stepper, rng = mechanism_of(model), Stepper(model), np.random.default_rng(1)
    states = random_states(mechanism, 12, 0, 1.0, 0.3)
    for state in states:
        for number, name in enumerate(LYING):
            heading, tilt = rng.uniform(0, 2 * np.pi), rng.normal(size=3) * [0.004, 0.004, 0]
            turn, flat = np.zeros(4), np.array([np.cos(heading / 2), 0, 0, np.sin(heading / 2)])
            mujoco.mju_mulQuat(turn, np.array([1.0, *tilt]) / np.linalg.norm([1.0, *tilt]), flat)
            if name in ("stick", "roller"):
                mujoco.mju_mulQuat(turn, turn.copy(), np.array([0.5**0.5, 0, 0.5**0.5, 0]))
            place = [rng.uniform(-0.42, 0.42), number - 2.0, HALF - 0.001]
            state[7 * number : 7 * number + 7] = torch.tensor([*place, *turn[1:], turn[0]])
    touched = []
    for state in states:
        stepper.step(state)
        touched.append(len(stepper.data.contact.dist))
    return stepper, engine(mechanism, model.opt.timestep), states, touched


def _errors(of, states, theirs):
    """Errors of the velocities of each body, as a share of the greatest change."""
    change = (theirs - states)[:, 7 * len(LYING) :].abs().max()
    return (stepped(of, states) - theirs)[:, 7 * len(LYING) :].abs().reshape(-1, 6).max(1).values / change


def test_a_step_of_shapes_that_lie_on_flat_sides_is_that_of_mujoco(lying):
    stepper, of, states, touched = lying
    errors = _errors(of, states, torch.stack([stepper.step(state) for state in states]))
    assert np.mean(touched) > 13  # of 4 + 2 + 4 + 2 + 4
    assert errors.median() < 1e-7
    assert (errors < 1e-5).double().mean() > 0.9  # sticks are found to MuJoCo's accuracy alone
    assert errors.reshape(-1, len(LYING))[:, -1].max() < 1e-10  # which of eight corners are kept


def test_derivatives_of_shapes_that_lie_on_flat_sides_are_those_of_differences(lying):
    _, of, states, _ = lying
    weights, rng = torch.from_numpy(np.random.default_rng(2).normal(size=states.shape)), np.random.default_rng(3)
    ways = [off_quaternions(states, body, rng) for body in range(len(LYING))]
    found = []
    for gradient, quotient in along(lambda x: (stepped(of, x) * weights).sum(1), states, *ways):
        found += ((gradient - quotient).abs() / (1 + quotient.abs())).tolist()
    assert len(found) > 30
    assert np.median(found) < 1e-6
    assert np.quantile(found, 0.9) < 1e-5
