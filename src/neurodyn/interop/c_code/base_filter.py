# SPDX-License-Identifier: Apache-2.0
"""The causal filter of a floating base (`estimate.causal`) as C, with the frame of its model inside."""

from collections.abc import Sequence

import torch

from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import EstimationSettings
from neurodyn.estimate.causal import DOUBT, ITERATIONS, JUMP, LEARNT, MEMORY, MOST, STEPS, SUNK, USUAL, BaseFilter
from neurodyn.estimate.model_frames import LIFT
from neurodyn.estimate.robust import FORCE, TAIL
from neurodyn.estimate.standing import FELT, FLYING, HELD
from neurodyn.geometry import rotation
from neurodyn.interop.c_code.models import contact_places, model_frame
from neurodyn.interop.c_code.networks import columns
from neurodyn.interop.c_code.source import CArray, CFunction, CUnit, assignments
from neurodyn.interop.texts import template
from neurodyn.multibody.trace import Graph

_MEANS = {"instant": "0.5 * (state->specific_force[i] + specific_force[i])", "before": "specific_force[i]",
          "after": "state->specific_force[i]"}  # fmt: skip


def base_filter_unit(base: BaseFilter) -> CUnit:
    """Return the filter as C: `estimate` takes a frame's readings and returns the state of the base.

    Raises:
        InputError: Its model has no C form: it is not hybrid, its ground is no plane, or it has hidden joints.
    """
    model = base.dynamics
    if not isinstance(model, HybridDynamics) or model.mechanism.hidden:
        raise InputError(
            f"{model.kind} dynamics of {model.spec.robot!r}: a filter of its base has no C form; valid: hybrid "
            "dynamics without hidden joints"
        )
    spec, settings = model.spec, base.settings
    frame = model_frame(model)
    graph = Graph()
    points = contact_places(model, base.layout.contact_points, graph.inputs("q", spec.nq - 7))
    text = assignments(graph, [("places", points)], ["q"])
    helpers = template(
        "base_filter.c", JOINTS=spec.nq - 7, CONTROLS=spec.nu, POINTS=len(base.layout.contact_points), DT=repr(base.dt),
        MOUNT=_numbers(base.mounting.matrix), PLACE=_numbers(base.mounting.position),
        CENTRE=_numbers(base.model.to_centre), GRAVITY=_numbers(base.model.gravity),
        WHITENING=_numbers(base.whitening), RADII=", ".join(repr(one.radius) for one in base.layout.contact_points),
        STEPS=_list(STEPS), DOUBT=_list(DOUBT), MEMORY=model.memory, LIFT=LIFT, FORCE=FORCE, FELT=FELT,
        FLYING=FLYING, HELD=HELD, STANDING_HEIGHT=settings.standing_height, TAIL=TAIL, SUNK=SUNK, MOST=MOST,
        STANDING_SPEED=settings.standing_speed, ITERATIONS=ITERATIONS, REMEMBERED=MEMORY, LEARNT=LEARNT, JUMP=JUMP,
        USUAL=USUAL,
        GYROSCOPE_DRIFT=repr(settings.gyroscope_drift * base.dt**0.5),
        ACCELEROMETER_DRIFT=repr(settings.accelerometer_drift * base.dt**0.5),
        GROUND_NOISE=repr(settings.ground_noise * base.dt**0.5),
        TO_IMU=_numbers(rotation.conjugate(rotation.from_matrix(base.mounting.matrix))),
        ATTITUDE_NOISE=settings.attitude_noise, HEADING_NOISE=settings.heading_noise,
        START=_list(base.start_noise(attitude=True)), BLIND=_list(base.start_noise(attitude=False)),
    )  # fmt: skip
    given = (
        CArray("q", spec.nq - 7, f"encoders: {', '.join(spec.q_names[7:])}"),
        CArray("qd", spec.nv - 6, "their rates"),
        CArray("angular_velocity", 3, "gyroscope, its axes [rad/s]"),
        CArray("specific_force", 3, "accelerometer, its axes [m/s^2]"),
        CArray("attitude", 4, "rotation from the IMU to the world, scalar last, its heading may drift; zeros for none"),
        CArray("control", spec.nu, f"of the frame that ended: {', '.join(spec.controls)}"),
    )
    results = (
        CArray("quaternion", 4, "from the base to the world, scalar last"),
        CArray("linear_velocity", 3, "of the base's centre of mass, world axes [m/s]"),
        CArray("spin", 3, "angular velocity of the base, world axes [rad/s]"),
        CArray("height", 1, "of the base's origin above the ground [m]"),
        CArray("deviation", 4, "standard deviations of velocity [m/s] and height [m]"),
    )
    body = _STEP.format(
        memory="state->memory" if model.memory else "unused", mean=_MEANS[settings.specific_force],
        gyroscope=repr(settings.gyroscope_noise**2), accelerometer=repr(settings.accelerometer_noise**2),
        missed="missed * missed / 9" if settings.specific_force == "instant" else "0.0 * missed",
    )  # fmt: skip
    memory = [
        CArray("begun", 1, "or not", "int"), CArray("pose", 14, "quaternion, velocity, height and biases"),
        CArray("covariance", 169), CArray("surprise", 2, "and the variance of the model's errors"),
        CArray("q", spec.nq - 7), CArray("qd", spec.nv - 6),
        CArray("angular_velocity", 3), CArray("specific_force", 3),
        *([CArray("memory", model.memory, "drives and networks")] if model.memory else []),
    ]  # fmt: skip
    about = (
        "From encoders, IMU and commands; the model's contacts are the contact sensor. Horizontal position and heading "
        "are not known: the heading is that of the attitude or of dead reckoning."
    )
    step = CFunction("estimate", f"Returns the base's state, every {base.dt:g} s.", given, results, body, "changes")
    points_of = f"static void points_of(const real *q, real *places) {{\n{text}\n}}\n"
    return CUnit(
        title=f"Filter of the base of robot {spec.robot}", about=(about,), functions=(step,), memory=tuple(memory),
        numbers={"dt": base.dt}, helpers=frame + points_of + helpers, double=True,
    )  # fmt: skip


def _numbers(values: torch.Tensor) -> str:
    return _list(columns(values.flatten()))


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{float(x)!r}" for x in values)


_STEP = """Base *base = (Base *)state->pose;
real unused[1] = {{0}};
(void)unused;
const bool known = attitude[0] || attitude[1] || attitude[2] || attitude[3];
if (!state->begun[0]) {{
  begin(base, state->covariance, q, qd, specific_force, known ? attitude : 0);
  state->surprise[0] = state->surprise[1] = 1;
}} else {{
  Readings read;
  real points[3 * NP], rates[3 * NP], turned_by = 0, missed = 0;
  for (int i = 0; i < NJ; ++i) {{
    read.q[i] = state->q[i];
    read.qd[i] = state->qd[i];
    read.qd_later[i] = qd[i];
  }}
  for (int i = 0; i < NU; ++i) read.control[i] = control[i];
  for (int i = 0; i < 3; ++i) {{
    const real off = angular_velocity[i] - state->angular_velocity[i];
    const real step = specific_force[i] - state->specific_force[i];
    read.spin[i] = state->angular_velocity[i];
    read.spin_later[i] = angular_velocity[i];
    read.turn[i] = (real)0.5 * (read.spin[i] + read.spin_later[i]);
    read.force[i] = {mean};
    turned_by += off * off;
    missed += step * step;
  }}
  missed = MATH(sqrt)(missed);
  const real unseen = turned_by / 36;
  const real felt = norm3(read.force);
  legs(state->q, state->qd, points, rates);
  correct(base, state->covariance, &read, {memory}, state->surprise, points, rates);
  move_on(base, state->covariance, &read, dt * MATH(sqrt)({gyroscope} + unseen),
          dt * MATH(sqrt)({accelerometer} + {missed} + unseen * dt * dt * felt * felt));
  if (known) level(base, state->covariance, attitude);
}}
state->begun[0] = 1;
for (int i = 0; i < NJ; ++i) {{
  state->q[i] = q[i];
  state->qd[i] = qd[i];
}}
for (int i = 0; i < 3; ++i) {{
  state->angular_velocity[i] = angular_velocity[i];
  state->specific_force[i] = specific_force[i];
}}
real turn[9], arm[3], swing[3];
matrix_of(base->quaternion, turn);
turned(turn, to_centre, arm);
spin_of(base, angular_velocity, spin);
cross3(spin, arm, swing);
for (int i = 0; i < 4; ++i) {{
  quaternion[i] = base->quaternion[i];
  deviation[i] = MATH(sqrt)(state->covariance[(3 + i) * (ERR + 1)]);
}}
for (int i = 0; i < 3; ++i) linear_velocity[i] = base->velocity[i] + swing[i];
height[0] = base->height;"""


def filter_unit_of(run: str) -> CUnit:
    """Return the filter of a base by the model of a run, with the IMU that its robot declares (`base_filter_unit`)."""
    model = load(run)
    sensors = {} if model.robot is None else model.robot.sensors
    return base_filter_unit(BaseFilter(model, EstimationSettings.on_board(sensors)))
