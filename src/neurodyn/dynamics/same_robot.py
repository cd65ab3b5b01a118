# SPDX-License-Identifier: Apache-2.0
"""Checks that models and logs still match their robot, and logs completed from its declaration."""

import dataclasses

import msgspec
import numpy as np
import torch

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.drive import pd_gains
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.interface import Dynamics
from neurodyn.multibody.drives.drive import pd_torque
from neurodyn.robots import Robot
from neurodyn.robots.assets import source_digest
from neurodyn.robots.data import as_logged, drives_of_log, on_declared_ground


def require_robot(model: Dynamics, robot: Robot) -> None:
    """Refuse a robot whose declaration or asset changed since the model was trained.

    Raises:
        MismatchError: They differ; the message names the differences.
    """
    built, *layouts = _robot_as_built(robot)
    layouts = layouts if model.contacts_of_simulator else layouts[:1]
    require_match(model, robot.spec, built, f"robot {robot.name!r}")
    if model.fingerprint is not None:
        differences, *others = (_contact_point_differences(model.contact_points, layout) for layout in layouts)
        if differences and all(others):
            shown = "; ".join(differences[:4])
            raise MismatchError(
                f"robot {robot.name!r} has other contact points than its model was trained with: {shown}"
            )


def require_same_simulator(robot: Robot, store: Store) -> None:
    """Refuse data from a simulator with another articulation or other contact points than the robot's.

    The robot is built only if one of its sources has changed, or if the data do not record theirs; and only if the
    simulator is installed, which training does not need.

    Raises:
        MismatchError: They differ; the message names the differences.
    """
    from neurodyn.sim.simulators import has_simulator

    if store.header.fingerprint is None or not has_simulator(robot) or _is_unchanged(robot, store):
        return
    built, layout, _ = _robot_as_built(robot)
    differences = store.header.fingerprint.differences(built)
    differences += _contact_point_differences(store.header.contact_points, layout)
    if differences:
        shown = "; ".join(differences[:4])
        raise MismatchError(f"data do not fit robot {robot.name!r}, which changed since they were generated: {shown}")


def built_articulation(robot: Robot) -> Fingerprint:
    """Return the identity of a robot as currently built."""
    return _robot_as_built(robot)[0]


def _is_unchanged(robot: Robot, store: Store) -> bool:
    """Return whether the robot has the sources that the robot of the data was built from."""
    try:
        return store.header.sources is not None and store.header.sources == source_digest(robot)
    except (InputError, OSError):  # the builder reports the cause
        return False


def _contact_point_differences(own: ContactPointLayout | None, now: ContactPointLayout | None) -> list[str]:
    if own is None or now is None:
        return [] if own is now else [f"contact points are {'declared' if own is None else 'no longer declared'}"]
    return own.differences(now)


def _robot_as_built(robot: Robot) -> tuple[Fingerprint, ContactPointLayout | None, ContactPointLayout | None]:
    """Return the robot as currently built: identity, declared contact points, and those of soft constraints."""
    from neurodyn.sim.contact_points import contact_point_layout, contacts_on_plane
    from neurodyn.sim.simulators import articulation

    built = articulation(robot)
    if robot.contact_points is None:
        return built.fingerprint, None, None
    return built.fingerprint, contact_point_layout(built, robot), contacts_on_plane(built, robot)


def as_declared(robot: Robot, store: Store) -> Store:
    """Return a log with the mechanism, contact points and ground of its robot as declared, for known physics.

    The mechanism has the log's drives. Simulated data, and anything that a log holds itself, are
    unchanged.

    Raises:
        InputError: The robot has no asset, or its simulator is not installed.
    """
    header = store.header
    if header.source != "log" or header.mechanism is not None:
        return store
    if not robot.asset:
        raise InputError(f"robot {robot.name!r}: has no asset, and so no known motion; valid: no base")
    from neurodyn.sim.generation import simulated_header
    from neurodyn.sim.simulators import articulation

    commanded, store = as_logged(robot, header), on_declared_ground(robot, store)
    built = simulated_header(commanded, articulation(commanded), store.header.scene, seed=0, simulator={})
    filled = msgspec.structs.replace(
        store.header, fingerprint=built.fingerprint, mechanism=built.mechanism, simulator=built.simulator,
        contact_points=header.contact_points or built.contact_points, drives=drives_of_log(robot, header),
    )  # fmt: skip
    return dataclasses.replace(store, header=filled)


def as_torques(robot: Robot, store: Store) -> Store:
    """Return a log of targets with the torques of its drives at the start of each frame, for a model of torques.

    Raises:
        InputError: The drives are not known, or are no PD drives.
    """
    spec, drives = store.header.spec, as_logged(robot, store.header).drives
    if spec.control_kind != "target" or robot.command != "torque":
        return store
    kp, kd = map(torch.tensor, pd_gains(drives, spec.controls))
    most = torch.tensor([drives[name].effort_limit or torch.inf for name in spec.controls])
    frames = np.array(store.frames)
    q, qd, control = (torch.from_numpy(store.columns(name, frames)) for name in ("q", "qd", "control"))
    torque = pd_torque(spec, q, qd, control, kp, kd)
    control.copy_(torch.minimum(torch.maximum(torque, -most), most))
    header = msgspec.structs.replace(store.header, spec=msgspec.structs.replace(spec, control_kind="torque"), drives={})
    return dataclasses.replace(store, header=header, frames=frames)
