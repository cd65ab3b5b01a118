# SPDX-License-Identifier: Apache-2.0
"""Networks among which a discovery chooses: which quantities they may act on, what they see, and on what scale."""

import msgspec

from neurodyn.core.blueprint import Augmentation, Blueprint
from neurodyn.core.errors import InputError
from neurodyn.core.mechanism import Mechanism
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.learn.hybrid.windows import FitWindows
from neurodyn.multibody.articulated import Tree


def default_candidates(dynamics: HybridDynamics, windows: FitWindows, hidden: tuple[int, ...]) -> Blueprint:
    """Return a network on the torque of every joint with one degree of freedom, which sees all that moves or drives."""
    spec = dynamics.spec
    inputs: list[str] = []
    for joint in spec.joints:
        if not joint.scalar:
            continue
        inputs += [f"sin(q.{joint.name})", f"cos(q.{joint.name})"] if joint.continuous else [f"q.{joint.name}"]
    inputs += [f"qd.{name}" for name in spec.qd_names]
    inputs += [f"control.{name}" for name in spec.controls]
    names = [joint.name for joint in spec.joints if joint.scalar]
    sizes = torque_sizes(dynamics.mechanism, spec, windows)
    augmentations = tuple(
        Augmentation(
            quantities=(f"torque.{name}",),
            inputs=tuple(inputs),
            hidden=hidden,
            output_scale=(sizes[name],),
        )
        for name in names
    )
    return Blueprint(augmentations)


def torque_sizes(mechanism: Mechanism, spec: StateSpec, windows: FitWindows) -> dict[str, float]:
    """Return how large torques are that move each velocity coordinate as the log does: inertia times acceleration."""
    nominal = mechanism.quantities()
    tree = Tree(mechanism, nominal.__getitem__)
    q = windows.q[0, 0].tolist()
    still = [0.0] * spec.nv
    rest = tree.accelerations(tree.motions(q, still), q, still)
    change = (windows.qd[:, 1:] - windows.qd[:, :-1]) / spec.dt
    size = change.square().mean((0, 1)).sqrt().tolist()
    found = {}
    for dof, name in enumerate(spec.qd_names):
        unit = [float(i == dof) for i in range(spec.nv)]
        moved = tree.accelerations(tree.motions(q, still), q, unit)
        found[name] = max(size[dof] / abs(moved[dof] - rest[dof]), 1e-6)
    return found


def scaled(blueprint: Blueprint, windows: FitWindows, dynamics: HybridDynamics) -> Blueprint:
    """Return networks whose inputs are divided by their root mean square in the log, where no scale is given."""
    spec = dynamics.spec
    columns = {f"q.{name}": windows.q[..., i] for i, name in enumerate(spec.q_names)}
    columns |= {f"qd.{name}": windows.qd[..., i] for i, name in enumerate(spec.qd_names)}
    columns |= {f"control.{name}": windows.control[..., i] for i, name in enumerate(spec.controls)}
    sizes = {name: max(float(values.square().mean().sqrt()), 1e-6) for name, values in columns.items()}
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
