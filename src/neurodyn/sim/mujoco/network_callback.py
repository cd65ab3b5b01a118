# SPDX-License-Identifier: Apache-2.0
"""Networks of a robot's model as a callback of plain MuJoCo.

`neurodyn export RUN --to mjcf` writes a copy of this file beside the MJCF, with the robot's numbers and networks at its
end. It needs only numpy and mujoco:

    model = mujoco.MjModel.from_xml_path("arm.xml")
    arm_networks.install(model)      # from now on mujoco.mj_step(model, data) includes the networks
    mujoco.set_mjcb_control(None)    # removes them

The networks' generalised forces are added to `qfrc_passive` of the data. Their memory is kept in `userdata`, so that
copies of `data` continue independently and `mj_resetData` clears it. Steps are those of `mj_step`; calls of
`mj_forward` in between change nothing.
"""

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

Step = Callable[[list[float], list[float], list[float], list[float], np.ndarray], tuple[list[float], list[float]]]
"""Maps positions, velocities, commands, memory and weights to generalised forces and the memory after the step."""


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


NETWORK_ACTIVATIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "silu": (lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1.0 + z * (1.0 - _sigmoid(z)))),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: np.where(z > 0.0, 1.0, 0.0)),
    "tanh": (np.tanh, lambda z: 1.0 - np.tanh(z) ** 2),
    "elu": (lambda z: np.where(z > 0.0, z, np.expm1(np.minimum(z, 0.0))), lambda z: np.exp(np.minimum(z, 0.0))),
    "softplus": (lambda z: np.logaddexp(0.0, z), _sigmoid),
    "softsign": (lambda z: z / (1.0 + np.abs(z)), lambda z: 1.0 / (1.0 + np.abs(z)) ** 2),
}
"""Values and slopes of activations by name."""


def network(x: Sequence[float], w: np.ndarray, widths: tuple[int, ...], activation: str) -> list[float]:
    """Return the outputs of a perceptron; weights are, for each layer, a row-major matrix [out, in] and its bias."""
    y, first, (value, _) = np.array(x, dtype=float), 0, NETWORK_ACTIVATIONS[activation]
    for layer, (a, b) in enumerate(pairwise(widths)):
        y = w[first : first + a * b].reshape(b, a) @ y + w[first + a * b : first + (a + 1) * b]
        y = value(y) if layer < len(widths) - 2 else y
        first += (a + 1) * b
    return y.tolist()


def network_slope(x: Sequence[float], w: np.ndarray, widths: tuple[int, ...], activation: str) -> list[float]:
    """Return the derivatives of the outputs along a direction; `x` holds the inputs, then the direction."""
    y, s = np.array(x, dtype=float).reshape(2, widths[0])
    first, (value, slope) = 0, NETWORK_ACTIVATIONS[activation]
    for layer, (a, b) in enumerate(pairwise(widths)):
        matrix = w[first : first + a * b].reshape(b, a)
        z, s = matrix @ y + w[first + a * b : first + (a + 1) * b], matrix @ s
        y, s = (value(z), slope(z) * s) if layer < len(widths) - 2 else (z, s)
        first += (a + 1) * b
    return s.tolist()


def gated(x: Sequence[float], h: Sequence[float], w: np.ndarray) -> list[float]:
    """Return the next hidden state of a GRU; weights are of the inputs, of the state, and both biases (r, z, n)."""
    a, n = len(x), len(h)
    of_x, of_h = w[: 3 * n * a].reshape(3 * n, a), w[3 * n * a : 3 * n * (a + n)].reshape(3 * n, n)
    biases = w[3 * n * (a + n) :]
    i, j = of_x @ np.array(x) + biases[: 3 * n], of_h @ np.array(h) + biases[3 * n : 6 * n]
    reset, update = _sigmoid(i[:n] + j[:n]), _sigmoid(i[n : 2 * n] + j[n : 2 * n])
    return ((1.0 - update) * np.tanh(i[2 * n :] + reset * j[2 * n :]) + update * np.array(h)).tolist()


class MujocoNetworks:
    """The callback of a MuJoCo model.

    Attributes:
        model: The model; the callback does nothing for others.
    """

    def __init__(self, model: Any, step: Step, weights: np.ndarray, settings: dict[str, Any]) -> None:
        """Look up joints and actuators by name.

        `settings` holds joints (name, kind, encoder offset, reference point of a free one), commands (joint, whether
        `ctrl` is the command itself), the time step [s], and position and size of the memory in `userdata`.

        Raises:
            ValueError: The model lacks a joint or space for the memory, or has another time step.
        """
        mujoco: Any = import_module("mujoco")
        self.model, self._step, self._weights = model, step, weights
        self._joints, self._commands = [], []
        for name, kind, bias, reference in settings["joints"]:
            joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
            if joint < 0:
                raise ValueError(f"the model has no joint {name!r}; valid: the MJCF that was written with this file")
            places = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            self._joints.append((kind, *places, bias, np.array(reference, dtype=float)))
        for name, direct in settings["commands"]:
            joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
            found = [
                i for i in range(model.nu) if model.actuator_trnid[i, 0] == joint and model.actuator_trntype[i] == 0
            ]
            self._commands.append((direct, joint, found))
        self._memory, self._first = settings["memory"], settings["userdata"]
        step_length = settings["step"]
        if self._memory and abs(model.opt.timestep - step_length) > 1e-9 * step_length:
            raise ValueError(f"the time step is {model.opt.timestep:g} s; valid: {step_length!r}, that of the networks")
        if self._memory and model.nuserdata < self._first + 2 + 2 * self._memory:
            raise ValueError("the model has no place for the networks' memory; valid: the MJCF written with this file")
        self._half = 0.5 * model.opt.timestep

    def __call__(self, model: Any, data: Any) -> None:
        """Add the networks' forces to `qfrc_passive`."""
        if model is not self.model and model._address != self.model._address:
            return
        q, qd = self._state(data)
        commands = [self._command(data, *one) for one in self._commands]
        forces, after = self._step(q, qd, commands, self._remembered(data), self._weights)
        if self._memory:
            data.userdata[self._first + 2 + self._memory : self._first + 2 + 2 * self._memory] = after
        self._apply(data, forces)

    def _remembered(self, data: Any) -> list[float]:
        """Return the memory at the start of this step, as the previous step left it."""
        size = self._memory
        if not size:
            return []
        kept = data.userdata[self._first : self._first + 2 + 2 * size]
        if kept[0] and data.time > kept[1] + self._half:
            kept[2 : 2 + size] = kept[2 + size :]
        elif kept[0] and data.time < kept[1] - self._half:
            kept[2:] = 0.0
        kept[:2] = 1.0, data.time
        return kept[2 : 2 + size].tolist()

    def _state(self, data: Any) -> tuple[list[float], list[float]]:
        """Return positions (scalar last) and velocities (of free bodies: of the reference point, along world axes)."""
        q: list[float] = []
        qd: list[float] = []
        for kind, row, dof, bias, reference in self._joints:
            if kind not in ("free", "ball"):
                q.append(float(data.qpos[row]) + bias)
                qd.append(float(data.qvel[dof]))
                continue
            rotation = _matrix(data.qpos[row + 3 : row + 7] if kind == "free" else data.qpos[row : row + 4])
            w, x, y, z = data.qpos[row + 3 : row + 7] if kind == "free" else data.qpos[row : row + 4]
            if kind == "free":
                spin = rotation @ data.qvel[dof + 3 : dof + 6]
                q += data.qpos[row : row + 3].tolist()
                qd += (data.qvel[dof : dof + 3] + np.cross(spin, rotation @ reference)).tolist()
            else:
                spin = rotation @ data.qvel[dof : dof + 3]
            q += [float(x), float(y), float(z), float(w)]
            qd += spin.tolist()
        return q, qd

    def _command(self, data: Any, direct: bool, joint: int, actuators: list[int]) -> float:
        """Return a joint's command: `ctrl` itself, or the torque of its actuators."""
        model, total = self.model, 0.0
        for i in actuators:
            value = float(data.ctrl[i])
            if not direct:
                if model.actuator_ctrllimited[i]:
                    value = min(max(value, model.actuator_ctrlrange[i, 0]), model.actuator_ctrlrange[i, 1])
                gear, bias = float(model.actuator_gear[i, 0]), model.actuator_biasprm[i]
                position, rate = data.qpos[model.jnt_qposadr[joint]], data.qvel[model.jnt_dofadr[joint]]
                value = model.actuator_gainprm[i, 0] * value
                value += float(bias[0] + gear * (bias[1] * position + bias[2] * rate))
                if model.actuator_forcelimited[i]:
                    value = min(max(value, model.actuator_forcerange[i, 0]), model.actuator_forcerange[i, 1])
                value *= gear
            total += value
        return total

    def _apply(self, data: Any, forces: list[float]) -> None:
        """Add generalised forces, those of free bodies moved from the reference point to the origin."""
        first = 0
        for kind, row, dof, _, reference in self._joints:
            if kind not in ("free", "ball"):
                data.qfrc_passive[dof] += forces[first]
                first += 1
                continue
            rotation = _matrix(data.qpos[row + 3 : row + 7] if kind == "free" else data.qpos[row : row + 4])
            own = np.array(forces[first : first + (6 if kind == "free" else 3)])
            first, moment = first + len(own), own[-3:]
            if kind == "free":
                moment = moment + np.cross(rotation @ reference, own[:3])
                data.qfrc_passive[dof : dof + 3] += own[:3]
                dof += 3
            data.qfrc_passive[dof : dof + 3] += rotation.T @ moment


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation of a unit quaternion with the scalar first."""
    w, x, y, z = quaternion / math.sqrt(float(quaternion @ quaternion))
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
