# SPDX-License-Identifier: Apache-2.0
"""From the outputs of a blueprint's network to what they do, so that physics is kept whatever the weights are."""

from neurodyn.core.registry import Registry
from neurodyn.multibody.structures.acting import Form

FORMS: Registry[Form] = Registry(
    "structure",
    free="neurodyn.multibody.structures.acting:free",
    dissipative="neurodyn.multibody.structures.power:dissipative",
    gyroscopic="neurodyn.multibody.structures.power:gyroscopic",
    passive="neurodyn.multibody.structures.power:passive",
    conservative="neurodyn.multibody.structures.energy:conservative",
    inertial="neurodyn.multibody.structures.inertia:inertial",
)
"""Forms by the name of their structure (`core.description.structures.STRUCTURES`)."""
