# SPDX-License-Identifier: Apache-2.0
"""Whether the robots of a Newton model are the one that a neural model was trained on."""

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from neurodyn.core.description.fingerprint import Fingerprint
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.files.artifact import require_match
from neurodyn.dynamics.interface import Dynamics
from neurodyn.sim.fingerprint import fingerprint
from neurodyn.solvers.worlds import require_equal_worlds, require_robots_only

if TYPE_CHECKING:
    import newton

_TOLERANCE = 1e-3  # of the strength of gravity [m/s^2]


def require_robot(model: "newton.Model", dynamics: Dynamics, where: str) -> None:
    """Refuse worlds that hold anything that moves but the robot that a neural model was trained on.

    Args:
        model: A Newton model.
        dynamics: The neural model.
        where: Who asks, for error messages.

    Raises:
        InputError: Something moves in the worlds that is not the robot.
        MismatchError: The robots are another one; the message names the differences.
    """
    require_robots_only(model, where)
    own = dynamics.spec
    built = fingerprint(model)
    names = [joint.name for joint in built.joints]
    if dynamics.floating and built.joints and built.joints[0].kind == "free":
        # Importers name the joint of a floating base as they please.
        names[0] = own.joints[0].name
        built = _freed(built, dynamics.fingerprint)
    continuous = {joint.name: joint.continuous for joint in own.joints}
    joints = tuple(
        # Whether an angle turns without end is a matter of how it is compared; Newton does not know it.
        JointSpec(name=name, kind=joint.kind, continuous=continuous.get(name, False))  # pyright: ignore[reportArgumentType]
        for name, joint in zip(names, built.joints, strict=True)
    )
    present = StateSpec(robot=own.robot, joints=joints, controls=own.controls, dt=own.dt)
    require_match(dynamics, present, built, where)
    require_equal_worlds(model, where)


def _freed(built: Fingerprint, own: Fingerprint | None) -> Fingerprint:
    """Leave out what does not matter to a floating base: its joint's name and frame, and where gravity points."""
    if own is None:
        return built
    base = msgspec.structs.replace(built.joints[0], name=own.joints[0].name, parent_pose=own.joints[0].parent_pose)
    same = abs(np.linalg.norm(built.gravity) - np.linalg.norm(own.gravity)) < _TOLERANCE
    return msgspec.structs.replace(
        built, joints=(base, *built.joints[1:]), gravity=own.gravity if same else built.gravity
    )
