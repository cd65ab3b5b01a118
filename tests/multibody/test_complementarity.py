# SPDX-License-Identifier: Apache-2.0
"""Contact as impulses, against what mechanics says of boxes, balls and chains."""

from itertools import product

import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ChainJoint, ContactPoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.contacts.complementarity import (
    DEFAULTS,
    ImpulseSettings,
    contact_impulses,
    contact_rows,
    contact_velocities,
    tangent_axes,
)
from neurodyn.multibody.points import Kinematics, link_poses, touches
from neurodyn.multibody.trace import Graph
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramSizes
from tests.multibody.reference import (
    Configuration,
    close,
    euler,
    matrix,
    random_frame,
    random_mechanism,
    random_motion,
    unit,
)

F64 = torch.float64
STILL = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
FLAT = ([0.0, 0.0, 0.0], [0.0, 0.0, 1.0])
HALF, MASS, DT, MU, G = 0.05, 0.5, 1e-3, 0.5, 9.81


# --- one step, by floats ---------------------------------------------------------------------------------------------
def standing(rng, mechanism, q, points=6):
    """Return a mechanism with points at random, and for each a ground that it is in or not."""
    found, grounds, reference = [], [], Configuration(mechanism, q)
    for number in range(points):
        link = int(rng.integers(len(mechanism.links)))
        place, normal = rng.uniform(-0.4, 0.4, 3), unit(rng, 3)
        found.append(ContactPoint(name=f"p{number}", joint=link, point=tuple(map(float, place)), radius=0.02))
        centre = reference.origins[link] + reference.turns[link] @ place
        depth = 0.01 if number != 2 else -0.01
        grounds.append(((centre - (0.02 - depth) * normal).tolist(), normal.tolist()))
    return Mechanism(links=mechanism.links, gravity=mechanism.gravity, points=tuple(found)), grounds


def after_impulses(mechanism, grounds, q, qd, quantities=None, settings=ImpulseSettings()):
    """Return rows, impulses and velocities after them; those before them are those of a step without contact."""
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    q, qd, quantity = list(map(float, q)), list(map(float, qd)), {**DEFAULTS, **(quantities or {})}.__getitem__
    motions = tree.motions(q, qd)
    poses = link_poses(tree, motions)
    links = Kinematics(tree, motions)
    touched = touches(links, mechanism.points, grounds)
    rows = contact_rows(tree, poses, touched)
    impulses = contact_impulses(rows, qd, DT, quantity, settings)
    velocities = contact_velocities(links, touched, qd, DT, quantity, settings)
    return rows, np.array(impulses), np.array(velocities)


def of_points(mechanism, q, rows):
    """Return the Jacobian of the rows, from the reference."""
    reference, directions, found = Configuration(mechanism, q), iter(rows.directions), []
    names = [point.name for point in mechanism.points]
    for touch, count in zip(rows.touched, rows.tangents, strict=True):
        contact_point = mechanism.points[names.index(touch.name)]
        centre = reference.origins[contact_point.joint] + reference.turns[contact_point.joint] @ np.array(
            contact_point.point
        )
        jacobian = reference.point(contact_point.joint, centre - contact_point.radius * np.array(touch.normal))
        found += [np.array(next(directions)) @ jacobian for _ in range(1 + count)]
    return np.array(found)


@pytest.mark.parametrize("kinds", [("free", "revolute", "ball"), ("revolute", "prismatic", "ball", "revolute")])
@pytest.mark.parametrize("seed", range(4))
def test_impulses_change_velocities_as_the_mass_matrix_says_and_meet_the_conditions_of_contact(kinds, seed):
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, kinds, range(-1, len(kinds) - 1))
    q, qd, _ = random_motion(rng, mechanism)
    mechanism, grounds = standing(rng, mechanism, q)
    values = {"contact.friction": 0.4, "contact.baumgarte": 0.1, "contact.restitution": 0.3, "contact.cfm": 0.1}
    rows, impulses, after = after_impulses(mechanism, grounds, q, qd, values, ImpulseSettings(sweeps=4000, push=20.0))
    jacobian = of_points(mechanism, q, rows)
    close(rows.jacobian, jacobian, atol=1e-11)
    change = Configuration(mechanism, q).mass_matrix() @ (after - qd)
    close(change, jacobian.T @ impulses, atol=1e-9 * np.abs(impulses).max())
    speeds, first = jacobian @ after + 0.1 * impulses, 0
    for number, count in enumerate(rows.tangents):
        n, t, slip = impulses[first], *(x[first + 1 : first + 1 + count] for x in (impulses, speeds))
        rate = 0.1 * (0.01 - 1e-4) / DT
        wanted = max(0.3 * max(-jacobian[first] @ qd, 0), rate * 20 / (rate + 20))
        if number == 2:
            assert not impulses[first : first + 1 + count].any()
        else:
            assert n >= 0
            assert speeds[first] >= wanted - 1e-8
            assert n * (speeds[first] - wanted) == pytest.approx(0, abs=1e-8)
            assert np.linalg.norm(t) <= 0.4 * n + 1e-9
            close(t * np.linalg.norm(slip), -0.4 * n * slip, atol=1e-6)
        first += 1 + count
    assert np.count_nonzero(impulses) > 3


def test_momentum_changes_by_the_impulses():
    rng = np.random.default_rng(5)
    mechanism = random_mechanism(rng, ("free", "revolute", "ball", "prismatic"), (-1, 0, 1, 0))
    q, qd, _ = random_motion(rng, mechanism)
    mechanism, grounds = standing(rng, mechanism, q)
    rows, impulses, after = after_impulses(mechanism, grounds, q, qd)
    assert np.abs(impulses).max() > 0.1
    pushed = [x * np.array(d) for x, d in zip(impulses, rows.directions, strict=True)]
    owner = [touch for touch, count in zip(rows.touched, rows.tangents, strict=True) for _ in range(1 + count)]
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    poses = link_poses(tree, tree.motions(q.tolist(), qd.tolist()))
    places = [np.array(poses[touch.link].origin) + touch.arm for touch in owner]
    reference = Configuration(mechanism, q)
    linear, angular = (b - a for a, b in zip(reference.momentum(qd), reference.momentum(after), strict=True))
    close(linear, sum(pushed), atol=1e-10)
    close(angular, sum(np.cross(r, p) for r, p in zip(places, pushed, strict=True)), atol=1e-10)


def test_above_the_ground_nothing_happens():
    mechanism = box()
    q, qd = [0.0, 0.0, 0.2, *unit(np.random.default_rng(0), 4)], [0.3, -0.2, -5.0, 4.0, 3.0, -7.0]
    _, impulses, after = after_impulses(mechanism, [FLAT] * 8, q, qd)
    assert not impulses.any()
    assert after.tolist() == qd
    assert len(impulses) == 24


def test_tangents_are_orthonormal_for_every_normal():
    rng = np.random.default_rng(0)
    normals = [unit(rng, 3).tolist() for _ in range(50)]
    normals += [[x if i == k else 0.0 for i in range(3)] for k in range(3) for x in (1.0, -1.0)]
    for normal in [*normals, [1e-9, 0.0, -1.0], [0.6, 0.8, 0.0]]:
        for rigid in ((), (0,), (1,), (2,)):
            found = np.array([normal, *tangent_axes(normal, rigid)])
            close(found @ found.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_planar_chain_has_one_tangent_on_every_ground_in_its_plane(axis):
    graph = Graph()
    mechanism = pendulum(3, axis)
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    motions = tree.motions(graph.inputs("q", 3), graph.inputs("v", 3))
    poses = link_poses(tree, motions)
    normal = [0.0 if i == axis else graph.input("n", i) for i in range(3)]
    touched = touches(Kinematics(tree, motions), mechanism.points, [(graph.inputs("o", 3), normal)] * 3)
    assert contact_rows(tree, poses, touched).tangents == [1, 1, 1]
    normal = graph.inputs("n", 3)
    touched = touches(Kinematics(tree, motions), mechanism.points, [(graph.inputs("o", 3), normal)] * 3)
    assert contact_rows(tree, poses, touched).tangents == [2, 2, 2]


def test_what_cannot_move_along_the_normal_is_left_out():
    mechanism = pendulum(2, 1)
    sideways = [([0.0, 0.1, 0.0], [0.0, 1.0, 0.0])] * 2
    rows, impulses, after = after_impulses(mechanism, sideways, [0.3, 0.2], [1.0, 2.0])
    assert rows.touched == []
    assert len(impulses) == 0
    assert after.tolist() == [1.0, 2.0]


def test_settings_that_solve_nothing_are_refused():
    with pytest.raises(ValueError, match="sweeps is 0; valid: at least 1"):
        ImpulseSettings(sweeps=0)
    with pytest.raises(ValueError, match=r"push is 0\.0; valid: a speed above 0"):
        ImpulseSettings(push=0.0)


# --- roll-outs, compiled ---------------------------------------------------------------------------------------------
def box(frame=STILL, child=STILL, com=(0.0, 0.0, 0.0)):
    """Return a cube whose centre is at `com` of a body frame that is anywhere."""
    inertia = MASS * (2 * HALF) ** 2 / 6
    joint = ChainJoint(name="box", kind="free", parent=-1, parent_frame=frame, child_frame=child, axis=(0.0, 0.0, 0.0))
    corners = [tuple(c + x for c, x in zip(com, corner, strict=True)) for corner in product((-HALF, HALF), repeat=3)]
    return Mechanism(
        links=(Link(joint=joint, mass=MASS, com=com, inertia=(inertia, inertia, inertia, 0.0, 0.0, 0.0)),),
        points=tuple(ContactPoint(name=f"c{i}", joint=0, point=c, radius=0.0) for i, c in enumerate(corners)),
    )


def ball(radius=0.1):
    joint = ChainJoint(name="ball", kind="free", parent=-1, parent_frame=STILL, child_frame=STILL, axis=(0.0,) * 3)
    link = Link(joint=joint, mass=0.3, com=(0.0,) * 3, inertia=(0.0012, 0.0012, 0.0012, 0.0, 0.0, 0.0))
    return Mechanism(links=(link,), points=(ContactPoint(name="ball", joint=0, point=(0.0,) * 3, radius=radius),))


def pendulum(links, axis):
    def link(number):
        along = [0.0, 0.0, 0.0]
        along[(axis + 1) % 3] = -0.5
        frame = STILL if number == 0 else (*along, 0.0, 0.0, 0.0, 1.0)
        joint = ChainJoint(
            name=f"j{number}", kind="revolute", parent=number - 1, parent_frame=frame, child_frame=STILL,
            axis=tuple(float(i == axis) for i in range(3)),
        )  # fmt: skip
        centre = tuple(0.5 * x for x in along)
        contact_point = ContactPoint(name=f"p{number}", joint=number, point=tuple(along), radius=0.0)
        return Link(joint=joint, mass=1.0, com=centre, inertia=(0.02, 0.02, 0.02, 0.0, 0.0, 0.0)), contact_point

    pairs = [link(i) for i in range(links)]
    return Mechanism(links=tuple(a for a, _ in pairs), points=tuple(b for _, b in pairs))


def compiled(mechanism, settings=ImpulseSettings()):
    """Return a program on the plane z = 0 with gravity as what is held and friction and restitution as parameters."""

    def step(inputs):
        values = {**mechanism.quantities(), **DEFAULTS}
        values |= {f"gravity.{part}": g for part, g in zip("xyz", inputs.held, strict=True)}
        values["contact.friction"], values["contact.restitution"] = inputs.parameters
        tree = Tree(mechanism, values.__getitem__)
        q, qd = inputs.state[: mechanism.nq], inputs.state[mechanism.nq :]
        motions = tree.motions(q, qd)
        acceleration = tree.accelerations(motions, q, [0.0] * mechanism.nv)
        free = [v + DT * a for v, a in zip(qd, acceleration, strict=True)]
        links = Kinematics(tree, motions)
        touched = touches(links, mechanism.points, [FLAT] * len(mechanism.points))
        after = contact_velocities(links, touched, free, DT, values.__getitem__, settings)
        q, qd = euler(tree, q, after, [0.0] * mechanism.nv, DT)
        return [*q, *qd]

    return TracedProgram(ProgramSizes(state=mechanism.nq + mechanism.nv, held=3, parameters=2), step)


def run(program, state, frames, mu=MU, restitution=0.0, tilt=0.0):
    """Return the states of a roll-out under gravity that is tilted towards x."""
    state = torch.as_tensor(state, dtype=F64).reshape(1, -1)
    gravity = torch.tensor([G * np.sin(tilt), 0.0, -G * np.cos(tilt)], dtype=F64).expand(1, frames, 3)
    parameters = torch.as_tensor([mu, restitution], dtype=F64)
    return program.rollout(state, frames=frames, held=gravity.contiguous(), parameters=parameters)[0]


def energies(path):
    """Return the energy of the cube."""
    inertia = MASS * (2 * HALF) ** 2 / 6
    kinetic = 0.5 * (MASS * (path[:, 7:10] ** 2).sum(1) + inertia * (path[:, 10:13] ** 2).sum(1))
    return kinetic + MASS * G * path[:, 2]


@pytest.fixture(scope="module")
def cube():
    return compiled(box())


def lying(**changes):
    state = {"x": 0.0, "z": HALF, "vx": 0.0} | changes
    return [state["x"], 0.0, state["z"], 0.0, 0.0, 0.0, 1.0, state["vx"], 0.0, 0.0, 0.0, 0.0, 0.0]


def test_a_sliding_box_is_slowed_by_mu_g_and_stops(cube):
    path = run(cube, lying(vx=1.0), 400)
    speed = path[:, 7]
    deceleration = (speed[20] - speed[120]) / (100 * DT)
    assert deceleration.item() == pytest.approx(MU * G, rel=1e-6)
    assert path[-1, 0].item() == pytest.approx(1 / (2 * MU * G), rel=0.01)
    assert path[-1, 7:].abs().max() < 1e-5
    assert path[:, [1, 3, 4, 5]].abs().max() < 1e-3


def test_a_tilted_plane_holds_below_the_friction_angle_and_lets_slide_above(cube):
    angle = float(np.arctan(MU))
    assert run(cube, lying(), 1000, tilt=0.95 * angle)[-1, 0].abs() < 1e-4
    steep = 1.05 * angle
    expected = 0.5 * (np.sin(steep) - MU * np.cos(steep)) * G  # s = a t^2 / 2 at t = 1 s
    assert run(cube, lying(), 1000, tilt=steep)[-1, 0].item() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("share", "tips"), [(0.93, False), (1.07, True)])
def test_a_box_that_turns_about_its_edge_tips_if_its_energy_takes_it_over(cube, share, tips):
    # Half m (2/3 + 2) h^2 w^2 against m g h (root 2 - 1): about the edge at x = h, y free.
    rate = share * np.sqrt(2 * G * (np.sqrt(2) - 1) / (8 / 3 * HALF))
    state = lying(vx=rate * HALF)
    state[9], state[11] = rate * HALF, rate
    path = run(cube, state, 1500, mu=5.0)
    angle = 2 * torch.atan2(path[-1, 4].abs(), path[-1, 6].abs())
    assert angle.item() == pytest.approx(np.pi / 2 if tips else 0.0, abs=0.01)
    assert path[-1, 7:].abs().max() < 1e-5
    assert path[-1, 2].item() == pytest.approx(HALF, abs=2e-4)


def test_a_thrown_box_comes_to_rest_without_drift_and_gains_no_energy(cube):
    state = [0.0, 0.0, 0.2, *unit(np.random.default_rng(3), 4), 0.5, 0.2, 0.0, 3.0, 2.0, 1.0]
    path = run(cube, state, 4000, restitution=0.3)
    energy = energies(path)
    assert (energy[1:] - energy[:-1]).max() < 0.01 * energy[0]
    # Lasting gains there are none: from anywhere, later energies are at most what there was and a hundredth.
    assert (energy.flip(0).cummax(0).values.flip(0) - energy).max() < 0.02 * energy[0]
    assert path[-1, 7:].abs().max() < 1e-5
    assert (path[-1, :7] - path[-1000, :7]).abs().max() < 1e-5
    corners = matrix(path[-1, 3:7].numpy()) @ np.array(list(product((-HALF, HALF), repeat=3))).T
    heights = np.sort(corners[2] + path[-1, 2].item())
    close(heights, [0.0] * 4 + [2 * HALF] * 4, atol=2e-4)


@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.8])
def test_a_ball_rebounds_to_the_square_of_its_restitution(restitution):
    program = compiled(ball())
    path = run(program, [0.0, 0.0, 1.1, 0.0, 0.0, 0.0, 1.0] + [0.0] * 6, 1000, restitution=restitution)
    height, landed = path[:, 2] - 0.1, int((path[:, 2] < 0.1).nonzero()[0])
    assert height[landed:].max().item() == pytest.approx(restitution**2, abs=0.01)


def test_a_rolling_ball_keeps_five_sevenths_of_its_speed():
    # Angular momentum about the contact: m r v = (2/5 m r^2 + m r^2) w for a ball of 2/5 m r^2 that first only slides.
    path = run(compiled(ball()), [0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 1.0, 1.0] + [0.0] * 5, 400)
    assert path[-1, 7].item() == pytest.approx(5 / 7, rel=1e-3)
    assert path[-1, 11].item() == pytest.approx(50 / 7, rel=1e-3)


def test_the_place_of_frames_does_not_matter(cube):
    rng = np.random.default_rng(2)
    frame, child, com = random_frame(rng), random_frame(rng), (0.2, -0.1, 0.15)
    mechanism = box(frame, child, com)
    turn, at = matrix(unit(rng, 4)), np.array([0.1, -0.2, 0.15])
    velocity, spin = np.array([0.5, -0.3, -1.0]), np.array([3.0, -4.0, 2.0])
    quaternion = torch.tensor(np.r_[quaternion_of(turn)])
    plain = run(cube, [*at, *quaternion, *velocity, *spin], 600, restitution=0.2)
    # The joint's frame in the body, and in the frame of the joint at rest.
    base, own = matrix(frame[3:]), turn @ matrix(child[3:])
    origin = at + turn @ (np.array(child[:3]) - np.array(com))
    q = [*base.T @ (origin - np.array(frame[:3])), *quaternion_of(base.T @ own)]
    program = compiled(mechanism)
    path = run(program, [*q, *base.T @ velocity, *base.T @ spin], 600, restitution=0.2)
    for time in (0, 150, 300, 600):
        reference = Configuration(mechanism, path[time, :7].numpy())
        close(reference.centres[0], plain[time, :3], atol=1e-6)
        close(reference.turns[0], matrix(plain[time, 3:7].numpy()), atol=1e-5)
        close(base @ path[time, 7:10].numpy(), plain[time, 7:10], atol=1e-4)


def quaternion_of(turn):
    """Return the quaternion of a rotation by the eigenvector of Bar-Itzhack's matrix."""
    (a, b, c), (d, e, f), (g, h, i) = turn
    k = [[a - e - i, b + d, c + g, h - f], [b + d, e - a - i, f + h, c - g],
         [c + g, f + h, i - a - e, d - b], [h - f, c - g, d - b, a + e + i]]  # fmt: skip
    return np.linalg.eigh(np.array(k))[1][:, -1]


# --- derivatives -----------------------------------------------------------------------------------------------------
def difference_error(program, state, frames, weights):
    """Return the least over step sizes of the greatest error of the gradient by state, friction and restitution."""
    given = torch.tensor([*state, 0.4, 0.3], dtype=F64)

    def value(x):
        return (run_at(program, x, frames) * weights).sum()

    leaf = given.clone().requires_grad_()
    value(leaf).backward()
    assert leaf.grad is not None
    errors = []
    for step in (1e-5, 1e-6, 1e-7):
        found = []
        for index in range(len(given)):
            move = torch.zeros_like(given)
            move[index] = step
            found.append((value(given + move) - value(given - move)) / (2 * step))
        errors.append((torch.stack(found) - leaf.grad).abs().max() / leaf.grad.abs().max())
    return min(errors)


def run_at(program, x, frames):
    gravity = torch.tensor([0.0, 0.0, -G], dtype=F64).expand(1, frames, 3).contiguous()
    return program.rollout(x[None, :-2], frames=frames, held=gravity, parameters=x[-2:])[0, -1]


def in_the_ground(seed, corners):
    """Return a state that turns and slides with its lowest corner 2 cm deep."""
    turn = unit(np.random.default_rng(seed), 4)
    low = -min(matrix(turn)[2] @ np.array(corner) for corner in corners)
    return [0.1, 0.2, low - 0.02, *turn, 0.4, -0.2, -1.0, 1.0, 2.0, -3.0]


def test_gradients_of_a_step_are_those_of_differences(cube):
    for seed in range(4):
        state = in_the_ground(seed, product((-HALF, HALF), repeat=3))
        weights = torch.tensor(np.random.default_rng(seed).normal(size=13))
        assert difference_error(cube, state, 1, weights) < 1e-7


def test_implicit_gradients_of_a_step_are_those_of_differences_once_sweeps_have_converged():
    ends = ((HALF, 0.0, 0.0), (-HALF, 0.0, 0.0))
    whole = box()
    rod = Mechanism(
        links=whole.links,
        points=tuple(ContactPoint(name=f"e{i}", joint=0, point=e, radius=0.01) for i, e in enumerate(ends)),
    )
    program = compiled(rod, ImpulseSettings(sweeps=2000, adjoint="implicit"))
    for seed in range(4):
        state = in_the_ground(seed, ends)
        weights = torch.tensor(np.random.default_rng(seed).normal(size=13))
        assert difference_error(program, state, 1, weights) < 1e-6


def test_gradients_are_finite_at_rest_and_through_a_whole_throw(cube):
    for state in (lying(), [0.0, 0.0, 0.2, *unit(np.random.default_rng(3), 4), 0.5, 0.2, 0.0, 3.0, 2.0, 1.0]):
        leaf = torch.tensor(state, dtype=F64, requires_grad=True)
        run(cube, leaf, 1500, restitution=0.3)[-1].sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
        assert leaf.grad.abs().max() > 0.1
