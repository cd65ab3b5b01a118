# SPDX-License-Identifier: Apache-2.0
"""Tests of neurodyn.

With NEURODYN_CHECK_SHAPES=1 functions whose annotations name shapes of arrays check them whenever they are called.
"""

import os

CHECKED = (
    "neurodyn.control.robot.in_loop", "neurodyn.dynamics.analytic", "neurodyn.dynamics.control",
    "neurodyn.dynamics.coordinates", "neurodyn.dynamics.behind_drives", "neurodyn.dynamics.hybrid.model",
    "neurodyn.dynamics.interface", "neurodyn.dynamics.measures", "neurodyn.dynamics.neural.base_prediction",
    "neurodyn.dynamics.neural.model", "neurodyn.dynamics.world_model.base_path",
    "neurodyn.dynamics.world_model.model", "neurodyn.geometry.base_frame",
    "neurodyn.geometry.prisms.query", "neurodyn.geometry.proximity", "neurodyn.geometry.rotation",
    "neurodyn.interop.nerd", "neurodyn.multibody.drives.drive", "neurodyn.multibody.drives.drive_program",
    "neurodyn.multibody.contacts.held_ground", "neurodyn.multibody.motion", "neurodyn.dynamics.rollout_errors",
)  # fmt: skip
"""Modules whose public functions are annotated with shapes."""

if os.environ.get("NEURODYN_CHECK_SHAPES"):
    from jaxtyping import install_import_hook

    install_import_hook(CHECKED, "beartype.beartype")
