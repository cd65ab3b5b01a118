# SPDX-License-Identifier: Apache-2.0
"""Points that are held for a while, beside plain MuJoCo whose equality constraint is switched on."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.actuation import Pivot
from neurodyn.core.description.drive import Drive, require_drives
from neurodyn.core.errors import InputError
from tests.multibody.differences import require_along

mujoco = pytest.importorskip("mujoco")
models = pytest.importorskip("tests.multibody.mujoco_models")
F64 = torch.float64

BIPED = """<mujoco><compiler angle="radian"/><option timestep="{step}" integrator="implicitfast"/><worldbody>
<body name="base" pos="0 0 1"><freejoint name="base"/><inertial pos=".03 -.02 .05" mass="2" quat=".9 .1 .3 .2"
diaginertia=".02 .03 .01"/>
<body name="A" pos="0 .1 -.1" quat=".95 .1 .2 -.1"><joint name="a" axis="0 .8 .6" armature=".01"/>
<inertial pos=".02 .01 -.2" mass=".7" diaginertia=".01 .012 .003"/></body>
<body name="B" pos="0 -.1 -.1" quat=".9 -.2 .1 .3"><joint name="b" axis="0 1 0" damping=".05"/>
<inertial pos="-.01 .03 -.15" mass=".5" diaginertia=".006 .008 .002"/></body></body></worldbody>
<actuator><motor name="a" joint="a"/></actuator>
<equality><connect name="first" body1="A" anchor="{left}" solref="{soft} 1" solimp=".9999 .9999 1e-6" active="false"/>
<connect name="second" body1="B" anchor="{right}" solref="{soft} 1" solimp=".9999 .9999 1e-6" active="false"/>
</equality></mujoco>"""
FEET = {"left": (0.03, 0.02, -0.4), "right": (-0.02, 0.01, -0.35)}
FINE = 2e-5


class Biped:
    """A floating body with two legs whose feet are pivots, here and in MuJoCo."""

    def __init__(self, dt: float, frame: int = 1, **config):
        text = {name: " ".join(map(str, place)) for name, place in FEET.items()}
        self.model = mujoco.MjModel.from_xml_string(BIPED.format(step=FINE, soft=2.01 * FINE, **text))
        held = {name: Drive(kind="pivot", pivot=Pivot("ab"[k], place)) for k, (name, place) in enumerate(FEET.items())}
        free = models.mechanism_of(self.model)
        self.free = msgspec.structs.replace(free, equalities=msgspec.UNSET)
        self.mechanism = msgspec.structs.replace(self.free, drives=self.free.drives | held)
        self.engine = models.engine(self.mechanism, frame * dt, substeps=frame, **config)

    def rolled(self, state, commands, parameters=None, engine=None):
        engine = engine or self.engine
        given = torch.tensor(engine.nominal, dtype=F64) if parameters is None else parameters
        return engine.program.rollout(state[None], frames=len(commands), control=commands[None], parameters=given)[0]

    def moving(self, seed=0):
        """Return a state with speed in all coordinates."""
        random = np.random.default_rng(seed)
        turn = random.normal(size=4)
        q = [*random.normal(size=3), *(turn / np.linalg.norm(turn)), 0.3, -0.2]
        return torch.tensor([*q, *random.normal(size=self.mechanism.nv)], dtype=F64)

    def simulated(self, state, commands, frame):
        """Return MuJoCo's states after frames of `frame` steps, with its equalities held as commanded."""
        stepper = models.Stepper(self.model)
        model, data = stepper.model, stepper.data
        stepper._write(state.numpy())
        mujoco.mj_forward(model, data)
        states = []
        for command in commands.tolist():
            data.ctrl[:] = command[:1]
            for k, body in enumerate("AB"):
                if command[1 + k] and not data.eq_active[k]:
                    at, turn = data.body(body).xpos, data.body(body).xmat.reshape(3, 3)
                    model.eq_data[k][3:6] = at + turn @ model.eq_data[k][:3]
                data.eq_active[k] = bool(command[1 + k])
            for _ in range(frame):
                mujoco.mj_step(model, data)
            states.append(stepper._read())
        return torch.stack(states)


def commands_of(modes, frames, torque=0.3):
    return torch.tensor([[torque, *mode] for mode in modes for _ in range(frames)], dtype=F64)


def test_a_walk_over_switches_is_that_of_mujocos_equalities():
    """One foot held, then the other, then both, then none: impacts at the switches, no drift between them."""
    biped = Biped(FINE * 25)
    modes = [(1, 0), (0, 1), (1, 1), (0, 0)]
    commands, state = commands_of(modes, 80), biped.moving()
    theirs = biped.simulated(state, commands, 25)
    ours = biped.rolled(state, commands)[1:]
    nq = biped.mechanism.nq
    assert (theirs[:, :nq] - state[:nq]).abs().max() > 0.05
    for k in range(len(modes)):  # just after each switch, and at the end of each mode
        for frame in (80 * k + 4, 80 * k + 79):
            assert (ours - theirs)[frame, :nq].abs().max() < 2e-3
            assert (ours - theirs)[frame, nq:].abs().max() < 0.02


def test_the_impact_is_plastic_by_the_joint_space_inertia():
    biped = Biped(1e-7)
    state = biped.moving(3)
    stepper = models.Stepper(biped.model)
    stepper._write(state.numpy())
    model, data = stepper.model, stepper.data
    mujoco.mj_forward(model, data)
    inertia, jacobian = np.zeros((model.nv, model.nv)), np.zeros((3, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    body = data.body("A")
    foot = body.xpos + body.xmat.reshape(3, 3) @ FEET["left"]
    mujoco.mj_jac(model, data, jacobian, None, foot, body.id)
    before = data.qvel.copy()
    impulse = np.linalg.solve(jacobian @ np.linalg.solve(inertia, jacobian.T), jacobian @ before)
    data.qvel[:] = before - np.linalg.solve(inertia, jacobian.T @ impulse)
    expected = stepper._read()
    after = biped.rolled(state, torch.tensor([[0.0, 1.0, 0.0]], dtype=F64))[1]
    assert np.abs(before - data.qvel).max() > 0.3
    torch.testing.assert_close(after[9:], expected[9:], atol=1e-4, rtol=0.0)


def test_released_pivots_change_nothing():
    biped = Biped(0.002, 4)
    plain = models.engine(biped.free, 0.008, substeps=4)
    commands = commands_of([(0, 0)], 20)
    ours = biped.rolled(biped.moving(1), commands)
    free = biped.rolled(biped.moving(1), commands[:, :1], engine=plain)
    torch.testing.assert_close(ours, free, atol=1e-12, rtol=0.0)


def test_gradients_over_switches_are_those_of_differences():
    names = ("a.mass", "b.com.z", "base.inertia.yy", "a.origin.y")
    biped = Biped(0.002, 2, free=names)
    commands = commands_of([(1, 0), (0, 1), (1, 1)], 3)
    states = torch.stack([biped.moving(k) for k in range(6)])
    values = torch.tensor([biped.engine.nominal] * 6, dtype=F64)
    weights = torch.from_numpy(np.random.default_rng(5).normal(size=states.shape))

    def ends(states, values):
        path = biped.engine.program.rollout(
            states, frames=len(commands), control=commands.expand(6, -1, -1), parameters=values
        )
        return (path[:, -1] * weights).sum(1)

    way = torch.from_numpy(np.random.default_rng(1).normal(size=values.shape)) * values
    require_along(lambda x: ends(states, x), values, way, least=5, rtol=1e-5)
    moves = torch.from_numpy(np.random.default_rng(2).normal(size=states.shape))
    moves[:, 3:7] = 0.0
    require_along(lambda x: ends(x, values), states, moves, least=5, rtol=1e-5)


def test_a_pivot_takes_no_gain_and_no_integrator_within_a_step():
    with pytest.raises(InputError, match="holds a point; valid: kind pivot"):
        require_drives({"foot": Drive(kind="pivot", pivot=Pivot("a"), gain=2.0)}, ("foot",), "drives")
    with pytest.raises(InputError, match="has no pivot"):
        require_drives({"foot": Drive(kind="pivot")}, ("foot",), "drives")
    with pytest.raises(InputError, match="pivots act by impulses over a step"):
        Biped(0.002, integrator="rk4")
