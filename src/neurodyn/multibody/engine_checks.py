# SPDX-License-Identifier: Apache-2.0
"""What a mechanism, its state and its contact model must agree on before a step is traced."""

from msgspec import UNSET

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.multibody.contacts.contact_model import ContactModel


def require_contacts(mechanism: Mechanism, contact: ContactModel | None, robot: str) -> None:
    """Raise an InputError for contacts that a model does not have, or without anything that touches."""
    if contact is None:
        return
    if contact.constrains_joints and mechanism.body_contacts:
        names = ", ".join(pair.name for pair in mechanism.body_contacts)
        raise InputError(
            f"robot {robot!r}: soft contacts are those with the ground, and {names} is one of two bodies; valid: "
            "contact: force or impulse"
        )
    if not (mechanism.points or mechanism.body_contacts or contact.constrains_joints):
        raise InputError(
            f"robot {robot!r}: has no points that could touch a ground; declare `contact_points`, or `body_contacts`"
        )


def require_constraining(mechanism: Mechanism, contact: str | None, model: ContactModel | None, robot: str) -> None:
    """Raise InputError for equalities and tendons that the contact model does not constrain."""
    if model is not None and model.constrains_joints:
        return
    names = [f"equality {one.name!r}" for one in mechanism.equalities or ()]
    for tendon in mechanism.tendons or ():
        parts = {"limits": tendon.limited, "friction": tendon.friction, "armature": tendon.armature}
        names += [f"{what} of tendon {tendon.name!r}" for what, there in parts.items() if there]
    names += [f"adhesion of {name!r}" for name, drive in mechanism.drives.items() if drive.adhesion is not UNSET]
    if names:
        raise InputError(
            f"robot {robot!r}: {', '.join(names)} are soft constraints, which contact: {contact or 'none'} does not "
            "solve; valid: contact: soft"
        )


def require_joints(mechanism: Mechanism, spec: StateSpec) -> None:
    """Raise an InputError unless a state's joints are those of a mechanism."""
    links = [f"{link.joint.name} ({link.joint.kind})" for link in mechanism.links]
    joints = [f"{joint.name} ({joint.kind})" for joint in spec.joints]
    if links != joints:
        raise InputError(
            f"robot {spec.robot!r}: its joints are {', '.join(joints)}, but those of the mechanism are "
            f"{', '.join(links) or '(none)'}; valid: the same in the same order"
        )
