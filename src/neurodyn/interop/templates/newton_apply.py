# SPDX-License-Identifier: Apache-2.0
"""Apply identified parameters of a robot to a `newton.ModelBuilder` or `newton.Model`.

`neurodyn export RUN --to newton` writes the parameters to settings.json, and a copy of this file beside it. It needs
no neurodyn:

    from apply import apply
    flags = apply("settings.json", builder, dt=1 / 240)     # or a finished model, and then
    solver.notify_model_changed(flags)

Parameters are matched by joint name, in every world. A link is the body that a joint moves, including everything fixed
to it.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_DOF = {
    "armature": "joint_armature",
    "damping": "joint_damping",
    "friction": "joint_friction",
    "stiffness": "joint_stiffness",
    "lower": "joint_limit_lower",
    "upper": "joint_limit_upper",
    "limit_stiffness": "joint_limit_ke",
    "limit_damping": "joint_limit_kd",
    "effort_limit": "joint_effort_limit",
}
_INERTIA = ((0, 3, 4), (3, 1, 5), (4, 5, 2))  # of xx, yy, zz, xy, xz, yz


def apply(settings: str | Path | dict[str, Any], target: Any, *, dt: float | None = None, folder: Any = None) -> int:
    """Apply identified parameters to a builder or a finished model.

    Args:
        settings: Path or contents of settings.json.
        target: A `newton.ModelBuilder` before `finalize`, or a `newton.Model`. Drives and networks require a builder,
            before its world is replicated.
        dt: Time between two steps of the drives [s], required for delays and networks.
        folder: Folder of the network files; None for that of settings.json.

    Returns:
        Flags for `solver.notify_model_changed`.

    Raises:
        ValueError: A joint is missing, a delay or a network needs another `dt`, or a finished model would need drives.
    """
    if not isinstance(settings, dict):
        folder = Path(settings).parent if folder is None else folder
        settings = json.loads(Path(settings).read_text(encoding="utf-8"))
    assert isinstance(settings, dict)
    arrays = _Arrays(target)
    joints = _joints(target, arrays, [*settings["joints"], *settings["links"], *settings["drives"]])
    for name, values in settings["joints"].items():
        for joint in joints[name]:
            _apply_joint(arrays, joint, values)
    for name, values in settings["links"].items():
        for joint in joints[name]:
            _apply_link(arrays, joint, values)
    _apply_gravity(target, arrays, settings.get("gravity"))
    _apply_friction(arrays, joints, settings)
    arrays.write()
    if settings["drives"] or settings["networks"]:
        _add_actuators(target, joints, settings, dt, Path(folder or "."))
    return _flags()


class _Arrays:
    """Arrays of a builder or model as numpy arrays, by name; changed arrays are written back."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.finished = hasattr(target.joint_type, "numpy")
        self._read: dict[str, np.ndarray] = {}
        self._changed: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            values = getattr(self.target, name)
            self._read[name] = values.numpy().copy() if self.finished else np.array([_plain(x) for x in values])
        return self._read[name]

    def set(self, name: str, index: int, value: Any) -> None:
        """Set an entry."""
        values = self[name]
        values[index] = np.reshape(value, np.shape(values[index]))
        self._changed.add(name)

    def write(self) -> None:
        """Write back the changed arrays."""
        for name in self._changed:
            values = self._read[name]
            if self.finished:
                getattr(self.target, name).assign(values)
            else:
                own = getattr(self.target, name)
                for index, value in enumerate(values):
                    own[index] = _like(own[index], value)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else np.array(value, dtype=float)


def _like(old: Any, value: Any) -> Any:
    return type(old)(value) if isinstance(old, (int, float)) else type(old)(*np.ravel(value).tolist())


def _joints(target: Any, arrays: _Arrays, names: Iterable[str]) -> dict[str, list[int]]:
    """Return the joints of every name, one per world; a free joint matches any name."""
    import newton

    free = int(newton.JointType.FREE)
    by_name: dict[str, list[int]] = {}
    for index, label in enumerate(target.joint_label):
        by_name.setdefault(str(label).rsplit("/", 1)[-1], []).append(index)
    floating = [index for index, kind in enumerate(arrays["joint_type"]) if int(kind) == free]
    for name in names:
        if name not in by_name and not floating:
            raise ValueError(f"there is no joint {name!r}; valid: {', '.join(sorted(by_name))}")
        by_name.setdefault(name, floating)
    return by_name


def _apply_joint(arrays: _Arrays, joint: int, values: dict[str, Any]) -> None:
    dof = int(arrays["joint_qd_start"][joint])
    for name, array in _DOF.items():
        if name in values:
            arrays.set(array, dof, values[name])
    if "rest" in values:
        arrays.set("joint_rest_q", int(arrays["joint_q_start"][joint]), values["rest"])
    if "axis" in values:
        arrays.set("joint_axis", dof, values["axis"])
    if "origin" in values:
        frame = np.array(arrays["joint_X_p"][joint], dtype=float)
        frame[:3] = values["origin"]
        arrays.set("joint_X_p", joint, frame)


def _apply_link(arrays: _Arrays, joint: int, values: dict[str, Any]) -> None:
    import newton

    body = int(arrays["joint_child"][joint])
    inertia = np.array([[values["inertia"][k] for k in row] for row in _INERTIA])
    _set_body(arrays, body, values["mass"], values["com"], inertia)
    fixed, group = int(newton.JointType.FIXED), {body}
    for other, kind in enumerate(arrays["joint_type"]):  # parents come first
        child = int(arrays["joint_child"][other])
        if int(kind) == fixed and int(arrays["joint_parent"][other]) in group:
            group.add(child)
            _set_body(arrays, child, 0.0, (0.0, 0.0, 0.0), np.zeros((3, 3)))


def _set_body(arrays: _Arrays, body: int, mass: float, com: Any, inertia: np.ndarray) -> None:
    heavy = mass > 0
    arrays.set("body_mass", body, mass)
    arrays.set("body_com", body, com)
    arrays.set("body_inertia", body, inertia)
    arrays.set("body_inv_mass", body, 1.0 / mass if heavy else 0.0)
    arrays.set("body_inv_inertia", body, np.linalg.inv(inertia) if heavy else inertia)


def _apply_gravity(target: Any, arrays: _Arrays, gravity: Any) -> None:
    if gravity is None:
        return
    if arrays.finished:
        target.set_gravity(tuple(gravity))
    else:
        target.gravity = tuple(gravity)


def _apply_friction(arrays: _Arrays, joints: dict[str, list[int]], settings: dict[str, Any]) -> None:
    """Set the friction coefficient of the robot's shapes."""
    if "friction" not in settings:
        return
    bodies = {int(arrays["joint_child"][joint]) for name in settings["links"] for joint in joints[name]}
    for shape, body in enumerate(arrays["shape_body"]):
        if int(body) in bodies:
            arrays.set("shape_material_mu", shape, settings["friction"])


def _add_actuators(target: Any, joints: dict[str, list[int]], settings: dict[str, Any], dt: Any, folder: Path) -> None:
    from newton import actuators

    if hasattr(target.joint_type, "numpy"):
        raise ValueError("a finished model takes no drives any more; valid: the builder, before it is replicated")
    for name, drive in settings["drives"].items():
        clamping = [(getattr(actuators, kind), values) for kind, values in drive["clamping"].items()]
        for joint in joints[name]:
            target.add_actuator(
                actuators.DrivePD,
                index=int(target.joint_qd_start[joint]),
                pos_index=int(target.joint_q_start[joint]),
                clamping=clamping,
                delay_steps=_steps(name, drive["delay"], dt),
                **drive["pd"],
            )
    for network in settings["networks"]:
        _require_step(network, dt)
        joints_of = _joints(target, _Arrays(target), network["joints"])
        for joint in (joint for name in network["joints"] for joint in joints_of[name]):
            target.add_actuator(
                getattr(actuators, network["drive"]),
                index=int(target.joint_qd_start[joint]),
                pos_index=int(target.joint_q_start[joint]),
                model_path=str(folder / network["file"]),
            )


def _steps(joint: str, delay: float, dt: float | None) -> int | None:
    if not delay:
        return None
    if dt is None:
        raise ValueError(f"the drive of {joint!r} has a delay of {delay:g} s; give dt, the time between actuator steps")
    return round(delay / dt)


def _require_step(network: dict[str, Any], dt: float | None) -> None:
    period = network["period"]
    if dt is None or abs(dt - period) > 1e-5 * period:
        raise ValueError(
            f"the network {network['file']} takes a sample every {period:g} s; valid: dt={period:g}, not {dt}"
        )


def _flags() -> int:
    import newton

    flags = newton.ModelFlags
    return int(
        flags.JOINT_PROPERTIES
        | flags.JOINT_DOF_PROPERTIES
        | flags.BODY_INERTIAL_PROPERTIES
        | flags.SHAPE_PROPERTIES
        | flags.MODEL_PROPERTIES
    )
