# SPDX-License-Identifier: Apache-2.0
"""Coordinates: what they mean, that every choice is the inertia of some body, and a payload beside plain MuJoCo."""

import math
from functools import partial
from pathlib import Path

import msgspec
import mujoco
import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.identify.motors import with_lag, with_named_motors
from neurodyn.identify.stages.stage_windows import near_limits
from neurodyn.identify.unknowns.quantities import LAG, free_space, is_coupled, limbs_of
from neurodyn.identify.unknowns.search_space import Coordinate, CoordinateSpace
from neurodyn.multibody.engine import nominal
from neurodyn.robots import load
from tests.identify.sensed import model

IDENTITY = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
LOADED = ("payload.mass", "payload.x", "payload.y", "payload.z", "payload.radius")


def joint(name: str, kind: str, parent: int, x: float = 0.0, z: float = 0.0) -> ChainJoint:
    frame = (x, 0.0, z, 0.0, 0.0, 0.0, 1.0)
    axis = (0.0, 1.0, 0.0) if kind == "revolute" else (0.0, 0.0, 0.0)
    return ChainJoint(name=name, kind=kind, parent=parent, axis=axis, parent_frame=frame, child_frame=IDENTITY)


def floating(com: tuple[float, float, float] = (0.03, -0.02, 0.05)) -> Mechanism:
    """A base with an off-centre mass and a leg of two links."""
    leg = (0.02, 0.02, 0.01, 0.0, 0.0, 0.0)
    return Mechanism(
        (
            Link(joint("base", "free", -1), 8.0, com, (0.3, 0.4, 0.5, 0.01, -0.02, 0.03)),
            Link(joint("hip", "revolute", 0, 0.2), 1.0, (0.0, 0.0, -0.1), leg),
            Link(joint("knee", "revolute", 1, 0.0, -0.3), 0.5, (0.0, 0.0, -0.1), leg),
        )
    )


def space_of(mechanism: Mechanism) -> CoordinateSpace:
    declared = nominal(mechanism, None)
    found = [Coordinate("base.mass_scale", 1.0, 0.2), Coordinate("hip.mass_scale", 1.0, 0.2)]
    found += [
        Coordinate("payload.mass", 0.2, 1.0, 0.5),
        *(Coordinate(f"payload.{a}", 0.0, 0.1, signed=True) for a in "xyz"),
    ]
    found += [Coordinate("payload.radius", 0.05, 0.5)]
    return CoordinateSpace(mechanism, found, limbs_of(mechanism), declared)


def test_limits_matter_to_a_fit_where_motion_comes_near_them():
    spec = StateSpec("leg", (JointSpec("hip", "revolute"), JointSpec("knee", "revolute")), ("hip", "knee"), 0.01)
    limits = [
        Coordinate(f"{joint}.{end}", sign * 1.0, 0.06, signed=True, quantities=(f"{joint}.{end}",))
        for joint in ("hip", "knee")
        for end, sign in (("lower", -1.0), ("upper", 1.0))
    ]
    known = {one.name: one.nominal for one in limits}
    space = CoordinateSpace(floating(), [Coordinate("hip.mass_scale", 1.0, 0.2), *limits], {"hip": ("hip",)}, known)
    q = torch.tensor([[-0.5, 0.0], [0.9, 0.3], [0.0, -0.1]])
    assert near_limits(space, spec, q, 3.0).tolist() == [False, False, True, False, False]


def test_a_value_of_nominal_zero_is_a_start_like_any_other():
    one = Coordinate("hip.friction", 0.0, 1.0, 0.4)
    assert float(one.value(torch.tensor(0.0))) == 0.0
    assert one.of(0.0) == 0.0
    assert one.range[0] == 0.0
    assert float(one.value(torch.tensor(one.of(6.0), dtype=torch.float64))) == pytest.approx(6.0)
    slope = (float(one.value(torch.tensor(1e-3))) - 0.0) / 1e-3
    assert slope == pytest.approx(0.4, rel=1e-3)


def test_bounds_hold_values_within_what_they_can_be():
    delay = Coordinate("motors.delay", 0.0, 1.0, 0.005, most=0.03)
    assert float(delay.value(torch.tensor(delay.range[1]))) == pytest.approx(0.03, rel=1e-5)
    assert Coordinate("gain", 1.0, 0.3).range == (-8.0, 8.0)
    assert math.isinf(Coordinate("gain", 1.0, 0.3).of(-1.0))


def test_values_grow_or_are_linear_between_their_bounds():
    mechanism = floating()
    names = [f"{joint}.{what}" for joint in ("hip", "knee") for what in ("friction", "damping", "armature")]
    found = [
        Coordinate(names[0], 0.1, 0.5, 0.2, quantities=(names[0],)),
        Coordinate(names[1], 0.0, 1.0, 0.3, quantities=(names[1],), most=2.0),
        Coordinate(names[2], 0.02, 1.0, quantities=(names[2],)),
        Coordinate(names[3], 0.0, 1e3, signed=True, quantities=(names[3],), least=-500.0),
        Coordinate(names[4], 0.3, 0.5, signed=True, quantities=(names[4], names[5])),
    ]
    space = CoordinateSpace(mechanism, found, {}, dict.fromkeys(names, 0.0))
    x = torch.linspace(-8.0, 8.0, 65, dtype=torch.float64)[:, None].expand(-1, len(found))

    def value(one: Coordinate, x: torch.Tensor) -> torch.Tensor:
        grown = (one.nominal + one.size) * torch.exp(one.width * x) - one.size
        least, most = one.least_value, one.most
        value = one.nominal + one.width * x if one.signed else grown
        return value.clamp(-math.inf if least is None else least, math.inf if most is None else most)

    each = torch.stack([value(one, x[:, k]) for k, one in enumerate(found) for _ in one.quantities], -1)
    torch.testing.assert_close(space.values(x), each, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(one.value(x[:, 0]), space.values(x)[:, k]) for k, one in enumerate(found))
    gradient = torch.func.jacrev(lambda at: space.values(at).sum())(x[40])
    assert bool(gradient.isfinite().all())


def test_limbs_hang_at_a_floating_base_and_are_links_of_a_bolted_robot():
    assert limbs_of(floating()) == {"base": ("base",), "hip": ("hip", "knee")}
    bolted = Mechanism((Link(joint("a", "revolute", -1), 1.0, (0.1, 0.0, 0.0), (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)),))
    assert limbs_of(bolted) == {"a": ("a",)}


def test_declared_coordinates_are_the_declared_values_but_for_the_payload():
    mechanism = floating()
    space, declared = space_of(mechanism), nominal(mechanism, None)
    values = dict(zip(space.quantities, space.values(space.nominal).tolist(), strict=True))
    assert values["hip.mass"] == pytest.approx(declared["hip.mass"])
    assert values["knee.inertia.xx"] == pytest.approx(declared["knee.inertia.xx"])
    assert values["base.mass"] == pytest.approx(declared["base.mass"] + 0.2)


def test_every_choice_is_the_inertia_of_some_body():
    space, generator = space_of(floating()), torch.Generator().manual_seed(0)
    x = 2.0 * torch.randn(200, len(space.names), generator=generator, dtype=torch.float64)
    values = dict(zip(space.quantities, space.values(space.clip(x)).unbind(-1), strict=True))
    for link in ("base", "hip", "knee"):
        xx, yy, zz, xy, xz, yz = (values[f"{link}.inertia.{e}"] for e in ("xx", "yy", "zz", "xy", "xz", "yz"))
        matrix = torch.stack([torch.stack(r, -1) for r in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))], -2)
        moments = torch.linalg.eigvalsh(matrix)
        assert bool((values[f"{link}.mass"] > 0).all() and (moments > 0).all())
        assert bool((moments[:, 0] + moments[:, 1] >= moments[:, 2] - 1e-9).all())


def test_values_differentiate():
    space = space_of(floating())
    x = torch.tensor([0.3, -0.2, 1.5, 0.4, -0.3, 0.7, 0.2], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(space.values, (x,))


def loaded(x_of: dict[str, float]) -> tuple[Mechanism, CoordinateSpace, torch.Tensor]:
    mechanism = floating()
    space = space_of(mechanism)
    x = space.nominal.clone()
    for name, value in x_of.items():
        k = space.names.index(name)
        x[k] = space.coordinates[k].of(value)
    return mechanism, space, x


def mujoco_base(*, payload: bool) -> mujoco.MjModel:
    """The same base in MuJoCo, alone or with its payload welded to it."""
    spec = mujoco.MjSpec()
    spec.option.timestep = 1e-3
    base = spec.worldbody.add_body(name="base")
    base.add_freejoint()
    base.mass, base.ipos, base.explicitinertial = 8.0, [0.03, -0.02, 0.05], True
    base.fullinertia = [0.3, 0.4, 0.5, 0.01, -0.02, 0.03]
    if payload:
        box = base.add_body(name="box", pos=list(PLACE))
        box.mass, box.ipos, box.inertia, box.explicitinertial = 3.0, [0, 0, 0], [3.0 * 0.06**2] * 3, True
    return spec.compile()


PLACE = (0.1, -0.05, 0.12)
TRUTH = {"payload.mass": 3.0, "payload.radius": 0.06, **dict(zip(LOADED[1:4], PLACE, strict=True))}


def test_a_payload_is_a_body_welded_to_the_base():
    mechanism, space, x = loaded(TRUTH)
    values = {**nominal(mechanism, None), **dict(zip(space.quantities, space.values(x).tolist(), strict=True))}
    model = mujoco_base(payload=True)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    mass = float(model.body_mass[1:].sum())
    centre = (model.body_mass[1:, None] * data.xipos[1:]).sum(0) / mass
    assert values["base.mass"] == pytest.approx(mass)
    assert np.allclose([values[f"base.com.{a}"] for a in "xyz"], centre)
    matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, matrix)
    arm = np.array([[0, -centre[2], centre[1]], [centre[2], 0, -centre[0]], [-centre[1], centre[0], 0]])
    about = matrix[3:, 3:] - mass * (arm @ arm.T)
    found = [[values[f"base.inertia.{'xyz'[min(i, j)]}{'xyz'[max(i, j)]}"] for j in range(3)] for i in range(3)]
    assert np.allclose(found, about, atol=1e-9)


def test_velocities_stay_those_of_the_declared_centre_of_mass():
    """A turned base with an unknown payload, spinning in the air: logs know one point of it, not where its mass is."""
    mechanism, space, x = loaded(TRUTH)
    alone = Mechanism((mechanism.links[0],))
    values = dict(zip(space.quantities, space.values(x).tolist(), strict=True))
    free = tuple(f"base.{what}" for what in ("mass", "com", "inertia"))
    dynamics = model(alone, free, fine=True)
    given = torch.tensor([[values[one.name] for one in dynamics.physical.specs]], dtype=torch.float64)
    turn = np.array([0.2, -0.4, 0.3, 0.84])
    turn /= np.linalg.norm(turn)
    plain = mujoco_base(payload=True)
    data = mujoco.MjData(plain)
    data.qpos[:] = [0.1, 0.2, 3.0, turn[3], *turn[:3]]
    data.qvel[:] = [0.3, -0.2, 0.1, 1.0, -2.0, 1.5]  # of the origin, world axes; spin in body axes

    def declared_point() -> tuple[np.ndarray, np.ndarray]:
        world = np.zeros(9)
        mujoco.mju_quat2Mat(world, data.qpos[3:])
        rotation = world.reshape(3, 3)
        spin = rotation @ data.qvel[3:]
        velocity = data.qvel[:3] + np.cross(spin, rotation @ np.array(alone.links[0].com))
        return np.concatenate([velocity, spin]), np.array([*data.qpos[:3], *data.qpos[4:], data.qpos[3]])

    qd, q = declared_point()
    state = State(torch.tensor(q)[None], torch.tensor(qd)[None])
    frames = 200
    none = torch.zeros(1, frames, 0, dtype=torch.float64)
    with torch.no_grad():
        path = dynamics.simulate(state, none, given, dynamics.weights)
    mujoco.mj_step(plain, data, frames)
    qd, q = declared_point()
    assert np.allclose(path.qd[0, -1], qd, atol=6e-3)
    assert np.allclose(path.q[0, -1, :3], q[:3], atol=2e-3)


def cartpole_space(quantities: tuple[str, ...] = ("*",), asked: tuple[str, ...] = (), **prior: str) -> CoordinateSpace:
    robot = with_lag(load("cartpole"))
    mechanism, _, _ = declared_mechanism(robot, None)
    prior = {name.replace("_", "."): width for name, width in prior.items()}
    return free_space(robot, mechanism, nominal(mechanism, None), quantities, asked, prior)


def test_the_default_set_names_what_a_worn_robot_has():
    names = cartpole_space().names
    assert {"slider.mass_scale", "hinge.damping", "hinge.friction", "hinge.armature", "motors.delay"} <= set(names)
    assert {"actuator.slider.gain", "actuator.slider.lag", "actuator.slider.bias"} <= set(names)
    assert {"slider.lower", "slider.upper"} <= set(names)
    assert "hinge.lower" not in names  # it turns for ever
    assert not [name for name in names if name.startswith("payload")]


def test_the_lag_of_all_servos_is_one_quantity():
    """Their firmware is the same, and a lag of each would trade for its damping."""
    robot = load(Path(__file__).resolve().parents[2] / "examples" / "real_robots" / "so101")
    late = {name: msgspec.structs.replace(drive, lag=0.01) for name, drive in robot.drives.items()}
    robot = msgspec.structs.replace(robot, drives=late)
    mechanism, _, _ = declared_mechanism(robot, None)
    space = free_space(robot, mechanism, nominal(mechanism, None), ("*",), (), {})
    lags = tuple(f"actuator.{name}.lag" for name in robot.actuated)
    assert [name for name in space.names if "lag" in name] == [LAG]
    lag = space.coordinates[space.names.index(LAG)]
    assert lag.quantities == lags
    x = space.nominal.clone()
    x[space.names.index(LAG)] = lag.of(0.02)
    values = dict(zip(space.quantities, space.values(x).tolist(), strict=True))
    assert [values[name] for name in lags] == pytest.approx([0.02] * 6)


def test_patterns_say_which_quantities_of_the_set_are_free():
    some = cartpole_space(("*.damping", "motors.delay"))
    assert some.names == ("slider.damping", "hinge.damping", "motors.delay")
    assert some.quantities == ("slider.damping", "hinge.damping", "actuator.slider.delay")
    with pytest.raises(InputError, match=r"default set of 'cartpole' .* called 'hinge.dampng'; valid: .*hinge.damping"):
        cartpole_space(("hinge.dampng",))


def test_quantities_of_the_engine_are_added_with_starts_bounds_and_priors():
    space = cartpole_space(
        ("hinge.damping",), ("hinge.com.z=0.1:-0.3:0.4", "actuator.slider.gain"), hinge_damping="0.5"
    )
    assert space.names == ("hinge.damping", "hinge.com.z", "actuator.slider.gain")
    damping, centre, gain = space.coordinates
    assert damping.width == pytest.approx(0.5 / (damping.nominal + damping.size))
    assert (centre.nominal, centre.signed) == (0.1, True)
    assert [float(centre.value(torch.tensor(end))) for end in centre.range] == pytest.approx([-0.3, 0.4])
    assert centre.width > 0.02  # not of the size of a number that is nearly 0
    assert gain.declared_value == 1.0
    assert dict(zip(space.quantities, space.values(space.nominal).tolist(), strict=True))["hinge.com.z"] == (
        pytest.approx(0.1)
    )
    with pytest.raises(InputError, match=r"'hinge\.wheight' matches no quantity"):
        cartpole_space(("hinge.damping",), ("hinge.wheight",))


def test_a_quantity_that_is_added_acts_below_a_payload_and_a_scale_of_masses():
    mechanism, robot = floating(), msgspec.structs.replace(load("ant"), actuated={})
    declared = nominal(mechanism, None)
    space = free_space(robot, mechanism, declared, ("payload.mass", "hip.mass_scale"), ("base.com.x", "hip.mass"))
    assert set(LOADED) < set(space.names)
    x = space.nominal.clone()
    for name, value in (("base.com.x", 0.1), ("hip.mass", 2.0), ("hip.mass_scale", 1.5), ("payload.mass", 4.0)):
        x[space.names.index(name)] = space.coordinates[space.names.index(name)].of(value)
    values = dict(zip(space.quantities, space.values(x).tolist(), strict=True))
    assert values["hip.mass"] == pytest.approx(3.0)
    load_at = float(space.value("payload.x", x))
    assert values["base.com.x"] == pytest.approx((8.0 * 0.1 + 4.0 * load_at) / 12.0)


def test_a_payload_is_free_as_a_whole():
    mechanism = floating()
    robot = msgspec.structs.replace(load("ant"), actuated={})
    assert free_space(robot, mechanism, nominal(mechanism, None), ("payload.mass",)).names == LOADED


def test_coordinates_of_several_quantities_are_known_by_name():
    robot = with_lag(load("cartpole"))
    mechanism, _, _ = declared_mechanism(robot, None)
    declared = nominal(mechanism, None)
    assert is_coupled(robot, mechanism, declared, ["hinge.mass_scale"])
    assert not is_coupled(robot, mechanism, declared, ["actuator.slider.gain", "*.damping=0:1"])


@pytest.mark.parametrize("name", ["cartpole", "ant"])
def test_a_name_of_a_quantity_works_in_identify_and_in_adapt(name: str):
    """`identify --parameters NAME` frees it alone, `adapt` chooses it from its default set or adds it to the set."""
    robot = with_lag(load(name))
    mechanism, _, _ = declared_mechanism(robot, None)
    declared = nominal(mechanism, None)
    free = partial(free_space, robot, mechanism, declared)
    default = {one.name: one for one in free(("*",)).coordinates}
    for known in default:
        asked, chosen = ({one.name: one for one in space.coordinates} for space in (free((), (known,)), free((known,))))
        assert asked.keys() == chosen.keys() == (set(LOADED) if known in LOADED else {known})
        assert (asked[known].nominal, asked[known].signed) == (chosen[known].nominal, chosen[known].signed)
    for quantity in declared:
        assert quantity in free((), (quantity,)).names
        assert quantity in free(("*",), (quantity,)).names


def test_a_motor_is_given_to_a_joint_whose_motor_is_asked_for():
    robot = load("cartpole")
    assert not robot.drives
    assert set(with_named_motors(robot, ["actuator.*.gain"]).drives) == {"slider"}
    assert with_named_motors(robot, ["*.damping", "hinge.mass"]) is robot
