# SPDX-License-Identifier: Apache-2.0
"""What a hybrid model says of its robot, for other simulators."""

import numpy as np
import torch

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.simulators.identified import ACTUATOR, Identified
from neurodyn.dynamics.simulators.network import TrainedNetwork
from neurodyn.multibody.engine import nominal
from neurodyn.sim.assets.inertias import require_possible

_SOFT = ("contact.", ".limit_solref.", ".limit_solimp.", ".friction_solref.", ".friction_solimp.")


@torch.no_grad()
def identified(model: HybridDynamics, run: str, network: TrainedNetwork | None = None) -> Identified:
    """Return the identified robot of a hybrid model.

    Args:
        model: The model.
        run: Where it comes from, for messages.
        network: An actuator network beside it, which its blueprint may put at the actuators of its joints.

    Raises:
        InputError: It has other networks, its robot's declaration is gone, or an inertia is that of no body.
    """
    robot = model.robot
    if robot is None:
        raise InputError(f"{run}: the declaration of its robot, {model.declaration}, is gone; valid: put it back there")
    _refuse_networks(model, run, network)
    free = {spec.name: float(value) for spec, value in zip(model.physical.specs, model.physical(), strict=True)}
    declared = nominal(model.mechanism, model.config.contact)
    mechanism = _with(model.mechanism, free, run)
    soft = (
        {n: x for n, x in declared.items() if any(part in n for part in _SOFT)} if model.contacts_of_simulator else {}
    )
    return Identified(
        run=run,
        robot=robot,
        mechanism=mechanism,
        drives={n: d for n, d in mechanism.drives.items() if network is None or n not in network.joints},
        network=network,
        free=free,
        nominal={spec.name: declared.get(spec.name, spec.nominal) for spec in model.physical.specs},
        contact={name: free.get(name, value) for name, value in soft.items()},
    )


def _with(mechanism: Mechanism, free: dict[str, float], run: str) -> Mechanism:
    try:
        changed = mechanism.with_quantities(free)
    except ValueError as error:
        raise InputError(f"{run}: {error}") from None
    for before, after in zip(mechanism.links, changed.links, strict=True):
        if after.inertia != before.inertia:
            require_possible(f"{run}: link {after.joint.name!r}", inertia_matrix(after))
    return changed


def inertia_matrix(link: Link) -> np.ndarray:
    """Return the inertia of a link about its centre of mass [kg m^2], shape [3, 3]."""
    xx, yy, zz, xy, xz, yz = link.inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _refuse_networks(model: HybridDynamics, run: str, network: TrainedNetwork | None) -> None:
    known = {f"{ACTUATOR}{joint}" for joint in (() if network is None else network.joints)}
    others = [one for one in model.config.blueprint.augmentations if not known.issuperset(one.quantities)]
    if others:
        acted = "; ".join(", ".join(one.quantities) for one in others)
        raise InputError(
            f"{run}: has networks that act on {acted}, which no other simulator has a place for; valid: a run of "
            "`identify` without a blueprint, and an actuator network (`--drive network`) for drives"
        )
