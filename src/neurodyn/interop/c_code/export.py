# SPDX-License-Identifier: Apache-2.0
"""Export of a run as code: a policy, a model, an actuator network, or the imitation of an MPC."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn import robots
from neurodyn.core.artifacts import (
    atomic_folder,
    export_folder,
    is_policy,
    read_json,
    read_weights,
    require_writable,
)
from neurodyn.core.config import from_dict
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.kinds import KINDS
from neurodyn.interop.c_code.networks import NetworkWriter, columns, modules_of
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.c_code.source import CArray, CFunction, CUnit, assigned, identifier
from neurodyn.interop.formats import CODE
from neurodyn.interop.identified import TrainedNetwork, perceptron, read_network, recurrent
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum
from neurodyn.multibody.trace.expression import apply_loop
from neurodyn.walking.controller import LATE, SETTLED, affordable_swing
from neurodyn.walking.force_network import CONFIG, WEIGHTS, ForceNetwork, ImitationConfig, load_imitation
from neurodyn.walking.gait import GAITS
from neurodyn.walking.plant import declared_quadruped, walking_robot
from neurodyn.walking.quadruped import LEGS, Quadruped
from neurodyn.walking.state import CONTACT, FEATURES, READINGS, leg_readings


def code_unit(run: str) -> CUnit:
    """Return the C unit of a run or a policy, or raise an InputError if part of it has no C form."""
    if is_policy(run):
        return policy_unit(run)
    if (Path(run) / CONFIG).is_file():
        return forces_unit(Path(run))
    network = read_network(run)
    if network is not None and not (Path(run) / "model").is_dir():
        return drive_unit(network)
    model = load(run)
    return KINDS[model.kind].code.get(run)(model)


def drive_unit(network: TrainedNetwork) -> CUnit:
    """Return the C unit for one drive's torque; each joint has its own state."""
    config, what = network.config, f"{network.run}: its actuator network"
    signals, writer, graph = len(config.signals), NetworkWriter(config.inputs, what), Graph()
    given = CArray("signals", signals, ", ".join(config.signals))
    result = CArray("effort", 1, "[N m or N]")
    memory: list[CArray] = []
    if config.network == "gru":
        cells, head = recurrent(network)
        last = writer.perceptron(writer.recurrent("in", cells), [head], config.activation)
        seen: list[Scalar] = [*graph.inputs("signals", signals)]
        body = ""
    else:
        last = writer.perceptron("in", modules_of(perceptron(network)), config.activation)
        frames = config.steps[-1] + 1
        memory += [CArray("past", frames * signals, "signals, newest first"), CArray("begun", 1, "or not", "int")]
        body = _PAST.format(signals=signals, older=(frames - 1) * signals)
        past = graph.inputs("past", frames * signals)
        seen = [past[signals * step + number] for number in range(signals) for step in config.steps]
    scales = [scale for scale in config.scales for _ in config.steps]
    inputs = [graph.lift(x * scale) for x, scale in zip(seen, scales, strict=True)]
    [found] = apply_loop(graph, writer.loop(last, 1), inputs)
    effort = [found * config.effort_scale]
    body += assigned(graph, [("effort", effort)], {"signals": "signals", "past": "state->past"})
    about = f"Returns the torque of one joint at a sample; samples are {config.period:g} s apart."
    step = CFunction("step", about, (given,), (result,), body, "changes")
    return CUnit(
        title=f"Drives of {', '.join(config.joints)}, {config.network}", functions=(step,),
        about=(f"Commands are {config.command}s. Every joint has a state of its own.",),
        memory=(*memory, *writer.memory), numbers={"period": config.period}, helpers=writer.text(),
    )  # fmt: skip


_PAST = """for (int i = {older} - 1; i >= 0; --i) state->past[{signals} + i] = state->past[i];
for (int i = 0; i < {signals}; ++i) state->past[i] = signals[i];
if (!state->begun[0]) for (int i = 0; i < {older}; ++i) state->past[{signals} + i] = signals[i % {signals}];
state->begun[0] = 1;
"""


def forces_unit(folder: Path) -> CUnit:
    """Return the C unit of a force law written by `neurodyn imitate`."""
    config = from_dict(read_json(folder / CONFIG), ImitationConfig, str(folder / CONFIG))
    network = ForceNetwork(1.0, config.widths)
    network.load_state_dict(read_weights(folder / WEIGHTS))
    weight, friction = float(network.weight), config.settings.friction
    writer, graph = NetworkWriter(FEATURES, str(folder)), Graph()
    features = graph.inputs("features", FEATURES)
    normaliser = network.normaliser
    seen = [
        (x - mean) * gain
        for x, mean, gain in zip(features, columns(normaliser.mean), columns(normaliser.gain), strict=True)
    ]
    last = writer.perceptron("in", modules_of(network.layers), "elu")
    found = [x * weight for x in apply_loop(graph, writer.loop(last, 3 * LEGS), [graph.lift(x) for x in seen])]
    forces: list[Scalar] = []
    for leg, contact in enumerate(features[CONTACT]):
        x, y, z = found[3 * leg : 3 * leg + 3]
        most = minimum(maximum(z, 0.0), contact * (config.settings.greatest_force * weight))
        side = most * friction
        forces += [*(maximum(minimum(one, side), -side) for one in (x, y)), most]
    arrays = (CArray("features", FEATURES, "neurodyn.walking.state.ForceInputs.features"),)
    result = CArray("forces", 3 * LEGS, "[N], heading frame: front left, front right, hind left, hind right")
    step = CFunction(
        "forces", "Returns the forces of the feet on the robot, inside the friction pyramids.", arrays, (result,),
        assigned(graph, [("forces", forces)], ("features",)),
    )  # fmt: skip
    title = f"Contact forces of {config.robot}, {config.gait}, imitated from convex MPC"
    try:
        robot = walking_robot(robots.load(config.robot))
        quadruped = declared_quadruped(robot)
        load_imitation(folder, quadruped, config.robot)
    except InputError as error:
        about = f"The controller around them is not here, because its robot is not: {error}"
        return CUnit(title=title, about=(about,), functions=(step,), helpers=writer.text())
    walking, memory = _walking(quadruped, robot.spec, config)
    return CUnit(
        title=title, about=("walk() is the whole controller, which calls forces().",), functions=(step, walking),
        memory=memory, helpers=writer.text(),
    )  # fmt: skip


def _walking(quadruped: Quadruped, spec: StateSpec, config: ImitationConfig) -> tuple[CFunction, tuple[CArray, ...]]:
    """Return `QuadrupedController.act` for one world, and its memory."""
    gait, settings = GAITS[config.gait], config.settings
    swing, graph = affordable_swing(quadruped, gait, settings), Graph()
    given = (
        CArray("q", spec.nq, ", ".join(spec.q_names)), CArray("qd", spec.nv, ", ".join(spec.qd_names)),
        CArray("command", 3, "velocities forward and to the left [m/s] and yaw rate [rad/s]"),
        CArray("dt", 1, "time between calls [s], always the same"),
    )  # fmt: skip
    read = leg_readings(quadruped, graph.inputs("q", spec.nq), graph.inputs("qd", spec.nv))
    numbers = {
        "offsets": gait.offsets, "stance": quadruped.stance[:, :2], "radii": quadruped.radii,
        "foot_inertia": quadruped.foot_inertia, "effort": quadruped.effort,
    }  # fmt: skip
    tables = [f"static const real {name}[] = {{{_numbers(values)}}};" for name, values in numbers.items()]
    tables.append(f"static const int controls[] = {{{', '.join(map(str, quadruped.controls.reshape(-1)))}}};")
    scalars = {
        "duty": gait.duty, "period": gait.period, "stance_time": gait.stance, "swing_time": gait.swing,
        "height": quadruped.height, "foot_gain": settings.foot_gain, "yaw_reach": settings.yaw_reach,
        "interval": settings.interval, "lift": swing.clearance, "stiffness": swing.frequency**2,
        "damping": 2.0 * settings.swing_damping * swing.frequency, "speed": min(float(swing.speed), 1e9),
        "settled": SETTLED * gait.duty, "late_height": LATE * quadruped.height, "pi": math.pi,
        "swinging": 1.0 / max(1.0 - gait.duty, 1e-9),
    }  # fmt: skip
    tables += [f"const real {name} = (real){float(value)!r};" for name, value in scalars.items()]
    arrays = [f"real {name}[{math.prod(shape)}];" for name, shape in READINGS.items()]
    body = "\n".join([*tables, *arrays, assigned(graph, list(read.items()), ("q", "qd")), _WALK])
    memory = (
        CArray("frame", 1, "calls so far", "int"), CArray("heading", 1, "reference [rad]"),
        CArray("ground", LEGS, "heights under the feet [m]"), CArray("lifted", 3 * LEGS, "where feet lifted off [m]"),
        CArray("decided", 3 * LEGS, "forces [N]"),
    )  # fmt: skip
    about = "Returns the torques under which the robot walks as commanded, from its measured state."
    torque = CArray("torque", spec.nu, f"[N m], of {', '.join(spec.controls)}")
    return CFunction("walk", about, given, (torque,), body, "changes"), memory


def _numbers(values: Any) -> str:
    return ", ".join(repr(float(x)) for x in np.asarray(values).reshape(-1))


# Same as `walking.controller`, for one world.
_WALK = """const double clock = (double)state->frame[0] * (double)dt[0];
const real roll = MATH(atan2)(rotation[7], rotation[8]), yaw = MATH(atan2)(rotation[3], rotation[0]);
const real pitch = MATH(asin)(MATH(fmin)(MATH(fmax)(-rotation[6], -(real)1), (real)1));
const real c = MATH(cos)(yaw), s = MATH(sin)(yaw);
real phase[4]; bool stands[4]; real wanted[3]; real share = (real)1;
for (int leg = 0; leg < 4; ++leg) {
const real across = command[0] - command[2] * stance[2 * leg + 1], along = command[1] + command[2] * stance[2 * leg];
const real own = speed / MATH(fmax)(MATH(sqrt)(across * across + along * along), (real)1e-9);
if (own < share) share = own;
const double turns = clock / (double)period + (double)offsets[leg];
phase[leg] = (real)(turns - floor(turns)); stands[leg] = phase[leg] < duty;
}
for (int i = 0; i < 3; ++i) wanted[i] = share * command[i];
if (state->frame[0] == 0) {
state->heading[0] = yaw;
for (int leg = 0; leg < 4; ++leg) state->ground[leg] = feet[3 * leg + 2] - radii[leg];
for (int i = 0; i < 12; ++i) { state->lifted[i] = feet[i]; state->decided[i] = (real)0; }
}
for (int leg = 0; leg < 4; ++leg) {
if (!stands[leg]) continue;
if (phase[leg] > settled) state->ground[leg] = feet[3 * leg + 2] - radii[leg];
for (int i = 0; i < 3; ++i) state->lifted[3 * leg + i] = feet[3 * leg + i];
}
real off = state->heading[0] + wanted[2] * dt[0] - yaw + pi;
off -= 2 * pi * MATH(floor)(off / (2 * pi)) + pi;
state->heading[0] = yaw + MATH(fmin)(MATH(fmax)(off, -yaw_reach), yaw_reach);
const real forward = c * velocity[0] + s * velocity[1], left_way = c * velocity[1] - s * velocity[0];
const int every = (int)MATH(fmax)(MATH(rint)(interval / dt[0]), (real)1);
if (state->frame[0] % every == 0) {
real ahead = state->heading[0] - yaw + pi;
ahead -= 2 * pi * MATH(floor)(ahead / (2 * pi)) + pi;
const real under = (state->ground[0] + state->ground[1] + state->ground[2] + state->ground[3]) / 4;
real features[41] = {roll, pitch, ahead, com[2] - under - height, c * spin[0] + s * spin[1], c * spin[1] - s * spin[0],
spin[2], forward, left_way, velocity[2], wanted[0], wanted[1], wanted[2]};
real found[12]; bool finite = true;
for (int leg = 0; leg < 4; ++leg) {
const real x = feet[3 * leg] - com[0], y = feet[3 * leg + 1] - com[1];
features[13 + 3 * leg] = c * x + s * y; features[14 + 3 * leg] = c * y - s * x;
features[15 + 3 * leg] = feet[3 * leg + 2] - com[2];
features[25 + leg] = stands[leg] ? (real)1 : (real)0;
features[29 + leg] = ((stands[leg] ? duty : (real)1) - phase[leg]) * period;
features[33 + leg] = MATH(sin)(2 * pi * phase[leg]); features[37 + leg] = MATH(cos)(2 * pi * phase[leg]);
}
@_forces(features, found);
for (int i = 0; i < 12; ++i) finite = finite && isfinite(found[i]);
if (finite) memcpy(state->decided, found, sizeof found);
}
for (int leg = 0; leg < 4; ++leg) {
const real *own = state->decided + 3 * leg, *foot = feet + 3 * leg, *moves = foot_velocity + 3 * leg;
const real above = foot[2] - radii[leg] - state->ground[leg];
const bool late = stands[leg] && phase[leg] <= settled && duty < 1 && above > late_height;
real pull[3];
if (stands[leg] && !late) {
pull[0] = -(c * own[0] - s * own[1]); pull[1] = -(s * own[0] + c * own[1]); pull[2] = -own[2];
} else if (duty >= 1) {
pull[0] = pull[1] = pull[2] = (real)0;
} else {
const real until = late ? (real)0 : ((stands[leg] ? duty : (real)1) - phase[leg]) * period;
const real cs = MATH(cos)(wanted[2] * until), sn = MATH(sin)(wanted[2] * until);
const real x = cs * stance[2 * leg] - sn * stance[2 * leg + 1], y = sn * stance[2 * leg] + cs * stance[2 * leg + 1];
const real px = x + stance_time / 2 * (wanted[0] - wanted[2] * y) + foot_gain * (forward - wanted[0]);
const real py = y + stance_time / 2 * (wanted[1] + wanted[2] * x) + foot_gain * (left_way - wanted[1]);
const real landing[3] = {com[0] + velocity[0] * until + c * px - s * py, com[1] + velocity[1] * until + s * px + c * py,
state->ground[leg] + radii[leg]};
const real *from = state->lifted + 3 * leg;
const real progress = late ? (real)1 : MATH(fmin)(MATH(fmax)((phase[leg] - duty) * swinging, (real)0), (real)1);
real push[3];
for (int i = 0; i < 3; ++i) {
real begin = from[i], end = landing[i], z = progress, time = swing_time;
if (i == 2) {
const bool rising = progress < (real)0.5;
const real apex = MATH(fmax)(from[2], landing[2]) + lift;
begin = rising ? from[2] : apex; end = rising ? apex : landing[2];
z = rising ? 2 * progress : 2 * progress - 1; time = swing_time / 2;
}
const real place = begin + z * z * z * (10 - 15 * z + 6 * z * z) * (end - begin);
const real rate = 30 * z * z * (1 - z) * (1 - z) * (end - begin) / time;
const real curve = 60 * z * (1 - z) * (1 - 2 * z) * (end - begin) / (time * time);
push[i] = curve + stiffness * (place - foot[i]) + damping * (rate - moves[i]);
}
const real at_heading[3] = {c * push[0] + s * push[1], c * push[1] - s * push[0], push[2]};
real heavy[3];
for (int i = 0; i < 3; ++i) {
const real *row = foot_inertia + 9 * leg + 3 * i;
heavy[i] = row[0] * at_heading[0] + row[1] * at_heading[1] + row[2] * at_heading[2];
}
pull[0] = c * heavy[0] - s * heavy[1]; pull[1] = s * heavy[0] + c * heavy[1]; pull[2] = heavy[2];
}
for (int j = 0; j < 3; ++j) {
const int at = 3 * leg + j;
const real *J = jacobian + 9 * leg + j;
const real sum = J[0] * pull[0] + J[3] * pull[1] + J[6] * pull[2] + weight[at];
torque[controls[at]] = sum > effort[at] ? effort[at] : sum < -effort[at] ? -effort[at] : sum;
}
}
bool sound = true;
for (int i = 0; i < 12; ++i) sound = sound && isfinite(torque[controls[i]]);
if (!sound) for (int i = 0; i < 12; ++i) torque[controls[i]] = (real)0;
++state->frame[0];"""


def export_code(run: str, to: str, out: Path | None = None) -> Path:
    """Write a policy, a model, an actuator network or the imitation of an MPC as code.

    Args:
        run: A run, "pretrained:NAME", the folder of a policy, or "pretrained-policy:NAME".
        to: Name of a language in `CODE`.
        out: Folder to write, which must not exist; None for RUN/TARGET, or ./NAME-TARGET for pretrained ones. Files and
            functions are named after the run.

    Returns:
        The folder.

    Raises:
        InputError: There is no such run, part of it has no C form, or the folder exists.
    """
    folder = export_folder(run, to) if out is None else out
    if folder.exists():
        raise InputError(f"{folder}: exists; valid: the path of a folder that does not (--out)")
    require_writable(folder)
    texts = CODE[to](code_unit(run), identifier(run.partition(":")[2] or Path(run).resolve().name))
    with atomic_folder(folder) as partial:
        for file, text in texts.items():
            (partial / file).write_text(text, encoding="utf-8")
    return folder
