# SPDX-License-Identifier: Apache-2.0
"""The causal filter of a floating base (`estimate.causal`) as C, with the frame of its model inside."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import torch

from neurodyn.core.description.sensors import Stream
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import EstimationSettings
from neurodyn.estimate.causal import DOUBT, ITERATIONS, JUMP, LEARNT, MEMORY, MOST, STEPS, SUNK, USUAL, BaseFilter
from neurodyn.estimate.model_frames import LIFT
from neurodyn.estimate.robust import FORCE, TAIL
from neurodyn.estimate.settings import SensorBeside
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
    beside = [_BesideInC.of(name, one, base) for name, one in settings.beside.items()]
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
        BESIDE=sum(one.kept for one in beside), MORE=len(beside), ROWS=sum(one.rows for one in beside),
        FIRST="".join(f"{4 + sum(one.rows for one in beside[: k + 1])}, " for k in range(len(beside) - 1))
        + ("" if not beside else "MOST - MODEL,"),
        SENSORS="".join(_SENSORS[kind] for kind in dict.fromkeys(one.kind for one in beside)),
        MEASUREMENTS="".join(one.call(beside[:k]) for k, one in enumerate(beside)),
        START=_list(base.start_noise(attitude=True)), BLIND=_list(base.start_noise(attitude=False)),
    )  # fmt: skip
    given = (
        CArray("q", spec.nq - 7, f"encoders: {', '.join(spec.q_names[7:])}"),
        CArray("qd", spec.nv - 6, "their rates"),
        CArray("angular_velocity", 3, "gyroscope, its axes [rad/s]"),
        CArray("specific_force", 3, "accelerometer, its axes [m/s^2]"),
        CArray("attitude", 4, "rotation from the IMU to the world, scalar last, its heading may drift; zeros for none"),
        CArray("control", spec.nu, f"of the frame that ended: {', '.join(spec.controls)}"),
        *(CArray(one.name, 3, one.about) for one in beside),
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
        given="for (int i = 0; i < BESIDE; ++i) read.beside[i] = state->beside[i];" if beside else "",
        kept="\n".join(one.keep(beside[:k]) for k, one in enumerate(beside)),
    )  # fmt: skip
    memory = [
        CArray("begun", 1, "or not", "int"), CArray("pose", 14, "quaternion, velocity, height and biases"),
        CArray("covariance", 169), CArray("surprise", 2, "and the variance of the model's errors"),
        CArray("q", spec.nq - 7), CArray("qd", spec.nv - 6),
        CArray("angular_velocity", 3), CArray("specific_force", 3),
        *([CArray("memory", model.memory, "drives and networks")] if model.memory else []),
        *([CArray("beside", sum(one.kept for one in beside), "readings beside the IMU")] if beside else []),
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


@dataclass(frozen=True)
class _BesideInC:
    """A sensor of the base beside its IMU, as C.

    Attributes:
        name: Name of its array.
        kind: Its kind.
        axes: Rotation from the sensor to the base.
        place: From the IMU to the sensor [m].
        noise: Of a reading.
        about: What its array holds.
    """

    name: str
    kind: str
    axes: torch.Tensor
    place: torch.Tensor
    noise: float
    about: str

    @classmethod
    def of(cls, name: str, one: SensorBeside, base: BaseFilter) -> "_BesideInC":
        """Return a sensor of a filter's settings.

        Raises:
            InputError: Its kind has no C form.
        """
        kind, sensor, settings = one.stream.kind, one.sensor, base.settings
        if kind not in _SENSORS:
            raise InputError(
                f"sensor {name!r}: a filter in C takes no {kind}; valid: {', '.join(_SENSORS)}, or none beside the IMU"
            )
        noise = settings.odometry_noise if kind == "odometry" else settings.magnetometer_noise
        about = "linear velocity, its axes [m/s], NaN for none" if kind == "odometry" else "its axes, zeros for none"
        place = torch.tensor(sensor.position, dtype=torch.float64) - base.mounting.position
        axes = rotation.matrix(torch.tensor(sensor.quaternion, dtype=torch.float64))
        used = re.sub(r"\W", "_", name)
        return cls(used, kind, axes, place, sensor.noises[0] if sensor.noises else noise, f"{kind}: {about}")

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return 3 if self.kind == "odometry" else 1

    @property
    def kept(self) -> int:
        """Numbers that are kept until the next frame: a reading, and where a field pointed to first."""
        return 3 if self.kind == "odometry" else 5

    def call(self, before: "Sequence[_BesideInC]") -> str:
        """Return the statements that compute the residuals."""
        row, place = 4 + sum(one.rows for one in before), sum(one.kept for one in before)
        arm = f", {self.name}_place" if self.kind == "odometry" else ""
        constants = f"  static const real {self.name}_axes[9] = {{{_numbers(self.axes)}}};\n"
        if arm:
            constants += f"  static const real {self.name}_place[3] = {{{_numbers(self.place)}}};\n"
        return (
            f"{constants}  {self.kind}(base, read, read->beside + {place}, {self.name}_axes{arm}, "
            f"(real){self.noise!r}, residual + {row}, rows + {row} * ERR);\n"
        )

    def keep(self, before: "Sequence[_BesideInC]") -> str:
        """Return the statements that keep a reading."""
        place = sum(one.kept for one in before)
        kept = f"for (int i = 0; i < 3; ++i) state->beside[{place} + i] = {self.name}[i];"
        if self.kind == "odometry":
            return kept
        axes = f"static const real {self.name}_axes[9] = {{{_numbers(self.axes)}}};"
        return f"{axes}\n{kept}\npoint_north(base, {self.name}_axes, state->beside + {place});"


def _numbers(values: torch.Tensor) -> str:
    return _list(columns(values.flatten()))


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{float(x)!r}" for x in values)


_SENSORS = {
    "odometry": """/* Velocity of a sensor at a place from the IMU, in its own axes, beside its reading. */
static void odometry(const Base *base, const Readings *read, const real *velocity, const real *axes, const real *at,
                     real noise, real *residual, real *rows) {
  real turn[9], spin[3], moving[3], across[9], swing[3];
  if (!(velocity[0] == velocity[0] && velocity[1] == velocity[1] && velocity[2] == velocity[2])) {
    residual[0] = residual[1] = residual[2] = 0;
    return;
  }
  matrix_of(base->quaternion, turn);
  for (int i = 0; i < 3; ++i) spin[i] = read->spin[i] - base->gyroscope[i];
  turned(mount, spin, spin);
  cross3(spin, at, swing);
  for (int i = 0; i < 3; ++i) {
    moving[i] = swing[i];
    for (int k = 0; k < 3; ++k) moving[i] += turn[3 * k + i] * base->velocity[k];
  }
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      across[3 * i + j] = 0;
      for (int k = 0; k < 3; ++k) across[3 * i + j] += axes[3 * k + i] * turn[3 * j + k];
    }
  const real *v = base->velocity;
  const real by_turn[9] = {0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0};
  const real by_spin[9] = {0, -at[2], at[1], at[2], 0, -at[0], -at[1], at[0], 0};
  for (int i = 0; i < 3; ++i) {
    residual[i] = -velocity[i];
    for (int k = 0; k < 3; ++k) residual[i] += axes[3 * k + i] * moving[k];
    residual[i] /= noise;
    for (int j = 0; j < 3; ++j) {
      real turning = 0, biased = 0;
      for (int k = 0; k < 3; ++k) {
        turning += across[3 * i + k] * by_turn[3 * k + j];
        for (int l = 0; l < 3; ++l) biased += axes[3 * k + i] * by_spin[3 * k + l] * mount[3 * l + j];
      }
      rows[i * ERR + j] = turning / noise;
      rows[i * ERR + 3 + j] = across[3 * i + j] / noise;
      rows[i * ERR + 7 + j] = biased / noise;
    }
  }
}

""",
    "magnetometer": """/* A magnetic field in world axes. */
static void field_of(const Base *base, const real *axes, const real *read, real *field) {
  real turn[9];
  turned(axes, read, field);
  matrix_of(base->quaternion, turn);
  turned(turn, field, field);
}

/* Keeps where the first field points to, beside its reading: read[3], if read[4]. */
static void point_north(const Base *base, const real *axes, real *read) {
  real field[3];
  if (read[4] || !(read[0] || read[1] || read[2])) return;
  field_of(base, axes, read, field);
  read[3] = MATH(atan2)(field[1], field[0]);
  read[4] = 1;
}

/* The heading of a field beside that at the start. */
static void magnetometer(const Base *base, const Readings *read, const real *known, const real *axes, real noise,
                         real *residual, real *rows) {
  real field[3];
  const real half_turn = (real)3.14159265358979323846;
  (void)read;
  residual[0] = 0;
  if (!known[4] || !(known[0] || known[1] || known[2])) return;
  field_of(base, axes, known, field);
  const real flat = field[0] * field[0] + field[1] * field[1], least = flat > (real)1e-12 ? flat : (real)1e-12;
  real off = MATH(atan2)(field[1], field[0]) - known[3];
  off -= 2 * half_turn * MATH(floor)((off + half_turn) / (2 * half_turn));
  residual[0] = off / noise;
  rows[0] = -field[2] * field[0] / least / noise;
  rows[1] = -field[2] * field[1] / least / noise;
  rows[2] = 1 / noise;
}

""",
}  # fmt: skip
"""Functions of each kind of sensor beside the IMU."""

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
  {given}
  legs(state->q, state->qd, points, rates);
  correct(base, state->covariance, &read, {memory}, state->surprise, points, rates);
  move_on(base, state->covariance, &read, dt * MATH(sqrt)({gyroscope} + unseen),
          dt * MATH(sqrt)({accelerometer} + {missed} + unseen * dt * dt * felt * felt));
  if (known) level(base, state->covariance, attitude);
}}
{kept}
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
    """Return the filter of a base by the model of a run, with the IMU that its robot declares (`base_filter_unit`).

    Odometry and magnetometers that it declares on the base help.
    """
    model = load(run)
    sensors = {} if model.robot is None else model.robot.sensors
    base = model.spec.joints[0].name
    beside = {
        name: SensorBeside(stream=Stream(name=name, kind=one.kind), sensor=one)
        for name, one in sensors.items()
        if one.kind in _SENSORS and one.link in ("", base)
    }
    settings = msgspec.structs.replace(EstimationSettings.on_board(sensors), beside=beside)
    return base_filter_unit(BaseFilter(model, settings))
