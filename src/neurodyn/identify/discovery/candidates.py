# SPDX-License-Identifier: Apache-2.0
"""Candidate networks of a discovery: the quantities that they act on, their inputs, and their scales."""

import msgspec

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.learn.hybrid.windows import FitWindows
from neurodyn.multibody.articulated import Tree


def default_candidates(dynamics: HybridDynamics, windows: FitWindows, hidden: tuple[int, ...]) -> Blueprint:
    """Return a network on the torque of every joint with one degree of freedom, of motions and controls."""
    spec = dynamics.spec
    single = [joint for joint in spec.joints if joint.scalar]
    inputs: list[str] = []
    for joint in single:
        inputs += [f"sin(q.{joint.name})", f"cos(q.{joint.name})"] if joint.continuous else [f"q.{joint.name}"]
    inputs += [f"qd.{name}" for name in spec.qd_names]
    inputs += [f"control.{name}" for name in spec.controls]
    sizes = torque_sizes(dynamics.mechanism, spec, windows)
    return Blueprint(
        tuple(
            Augmentation((f"torque.{joint.name}",), tuple(inputs), hidden=hidden, output_scale=(sizes[joint.name],))
            for joint in single
        )
    )


def torque_sizes(mechanism: Mechanism, spec: StateSpec, windows: FitWindows) -> dict[str, float]:
    """Return the size of the torque that moves each velocity coordinate as in the log: inertia times acceleration."""
    nominal = mechanism.quantities()
    tree = Tree(mechanism, nominal.__getitem__)
    q = windows.q[0, 0].tolist()
    still = [0.0] * spec.nv
    rest = tree.accelerations(tree.motions(q, still), q, still)
    change = (windows.qd[:, 1:] - windows.qd[:, :-1]) / spec.dt
    std = change.square().mean((0, 1)).sqrt().tolist()
    sizes = {}
    for dof, name in enumerate(spec.qd_names):
        unit = [float(i == dof) for i in range(spec.nv)]
        driven = tree.accelerations(tree.motions(q, still), q, unit)
        sizes[name] = max(std[dof] / abs(driven[dof] - rest[dof]), 1e-6)
    return sizes


def scaled(blueprint: Blueprint, windows: FitWindows, dynamics: HybridDynamics) -> Blueprint:
    """Return networks whose inputs are divided by their root mean square in the log, where no scale is given."""
    spec = dynamics.spec
    values = {f"q.{name}": windows.q[..., i] for i, name in enumerate(spec.q_names)}
    values |= {f"qd.{name}": windows.qd[..., i] for i, name in enumerate(spec.qd_names)}
    values |= {f"control.{name}": windows.control[..., i] for i, name in enumerate(spec.controls)}
    sizes = {name: max(float(value.square().mean().sqrt()), 1e-6) for name, value in values.items()}
    return Blueprint(
        tuple(
            msgspec.structs.replace(a, input_scale=a.input_scale or tuple(sizes.get(x, 1.0) for x in a.inputs))
            for a in blueprint.augmentations
        )
    )


def require_single(blueprint: Blueprint) -> None:
    """Refuse candidates whose inputs cannot be told apart by quantity.

    Raises:
        InputError: A network acts on several quantities, or has no hidden layer.
    """
    for augmentation in blueprint.augmentations:
        if len(augmentation.quantities) > 1 or not augmentation.hidden:
            raise InputError(
                f"candidates: the network of {', '.join(augmentation.quantities)} acts on several quantities or has no "
                "hidden layer; valid: one quantity for each, and a hidden layer, so that inputs can be told apart"
            )
