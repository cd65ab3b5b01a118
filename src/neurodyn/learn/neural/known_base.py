# SPDX-License-Identifier: Apache-2.0
"""The base of a training: the mechanism as built, or as it was identified on logs."""

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.core.notices import notice
from neurodyn.data.store import StoreHeader
from neurodyn.dynamics.files.artifact import require_match
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.learn.neural.settings import Settings
from neurodyn.robots.sections import SimulatorConfig


def known_base(settings: Settings, header: StoreHeader) -> tuple[Base | None, Mechanism | None]:
    """Return what predictions start from, and the mechanism that it is of.

    Args:
        settings: How the model is trained.
        header: What its data are; they hold the mechanism of a simulated robot. Where their commands are targets there
            is no base, since it would take them for torques, and a notice says so.

    Raises:
        InputError: The run that the base is to come from is that of another robot, or of a model that is more than
            soft constraints with identified quantities.
    """
    if settings.base is None:
        return None, header.mechanism
    if header.spec.control_kind != "torque":
        notice(
            f"base {settings.base!r} takes torques, and {header.spec.robot!r} is commanded otherwise: the model "
            "has none"
        )
        return None, header.mechanism
    if settings.base_from is None:
        return Base(kind=settings.base, substeps=_substeps(header)), header.mechanism
    run = settings.base_from
    model = HYBRID.load(run)
    require_match(model, header.spec, None, run)
    if model.config.contact != "soft" or model.config.blueprint.augmentations:
        raise InputError(
            f"{run}: a base is soft constraints without networks; valid: a run of `neurodyn hybrid`, or of "
            "`neurodyn identify` with `contact: soft` and without a blueprint"
        )
    values = zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True)
    return Base(kind=settings.base, substeps=model.config.substeps, values=dict(values)), model.mechanism


def _substeps(header: StoreHeader) -> int:
    """Return the steps of the simulator in a frame; for logs as many as a simulator takes by default."""
    return int((header.simulator or {}).get("substeps", SimulatorConfig().substeps))
