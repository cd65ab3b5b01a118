# SPDX-License-Identifier: Apache-2.0
"""Logs of a declared robot with what its declaration adds: mechanism, contact points, ground and substeps."""

import dataclasses

import msgspec
import numpy as np
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.multibody.drives.pd import pd_torque
from neurodyn.robots import Robot
from neurodyn.robots.data import as_logged, controller_of, grounded


def as_declared(robot: Robot, store: Store) -> Store:
    """Return a log with the mechanism, contact points and ground of its robot as declared, for known physics.

    The mechanism has the log's controller in its drives. Simulated data and whatever a log holds itself stay.

    Raises:
        InputError: The robot has no asset, or its simulator is not installed.
    """
    header = store.header
    if header.source != "log" or header.mechanism is not None:
        return store
    if not robot.asset:
        raise InputError(f"robot {robot.name!r}: has no asset, and so no known motion; valid: no base")
    from neurodyn.sim.generate import simulated_header
    from neurodyn.sim.simulators import articulation

    commanded, store = as_logged(robot, header), grounded(robot, store)
    built = simulated_header(commanded, articulation(commanded), store.header.scene, seed=0, simulator={})
    filled = msgspec.structs.replace(
        store.header, fingerprint=built.fingerprint, mechanism=built.mechanism, simulator=built.simulator,
        contact_points=header.contact_points or built.contact_points, controller=controller_of(robot, header),
    )  # fmt: skip
    return dataclasses.replace(store, header=filled)


def as_torques(robot: Robot, store: Store) -> Store:
    """Return a log of targets with the torques of its controller at the start of each frame, for a model of torques.

    Raises:
        InputError: The controller is not known, or is no PD controller.
    """
    spec, controller = store.header.spec, controller_of(robot, store.header)
    if controller is None:
        return store
    drives = robot.behind(controller).drives
    kp, kd = (torch.tensor([getattr(drives[name], gain) for name in spec.controls]) for gain in ("kp", "kd"))
    most = torch.tensor([drives[name].effort_limit or torch.inf for name in spec.controls])
    frames = np.array(store.frames)
    q, qd, control = (torch.from_numpy(store.columns(name, frames)) for name in ("q", "qd", "control"))
    torque = pd_torque(spec, q, qd, control, kp, kd)
    control.copy_(torch.minimum(torch.maximum(torque, -most), most))
    header = msgspec.structs.replace(
        store.header, spec=msgspec.structs.replace(spec, control_kind="torque"), controller=None
    )  # fmt: skip
    return dataclasses.replace(store, header=header, frames=frames)
