# SPDX-License-Identifier: Apache-2.0
"""Dynamics of articulated bodies: from a mechanism to a compiled, differentiable step."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.multibody.articulated import Tree
    from neurodyn.multibody.contacts.contact_model import ContactModel, Contacts
    from neurodyn.multibody.drives.drive import pd_torque
    from neurodyn.multibody.elements import ElementForces, ElementStep
    from neurodyn.multibody.engine import CONTACT_MODELS, INTEGRATORS, Engine, EngineConfig, nominal
    from neurodyn.multibody.motion import FreeMotion
    from neurodyn.multibody.points import wrenches
    from neurodyn.multibody.sensors import SensorFrame
    from neurodyn.multibody.structures import FORMS, ActingNetwork
    from neurodyn.multibody.trace import maximum

__all__ = [
    "CONTACT_MODELS", "FORMS", "INTEGRATORS", "ActingNetwork", "ContactModel", "Contacts", "ElementForces",
    "ElementStep", "Engine", "EngineConfig", "FreeMotion", "SensorFrame", "Tree", "maximum", "nominal", "pd_torque",
    "wrenches",
]  # fmt: skip
