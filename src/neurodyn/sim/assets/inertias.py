# SPDX-License-Identifier: Apache-2.0
"""Whether an inertia is one that a body can have.

Newton corrects others without a word when a model is finalised, so that the robot would not be the one of its asset.
"""

import numpy as np

from neurodyn.core.errors import InputError

_ROUNDING = 0.01
"""Share of the greatest moment of inertia by which assets may miss, as their numbers are rounded."""


def require_possible(where: str, inertia: np.ndarray) -> None:
    r"""Refuse an inertia that no body has.

    Moments about principal axes are at least 0, and none is above the sum of the others, since
    $I_{xx} + I_{yy} - I_{zz} = 2 \int z^2\,dm \ge 0$.

    Args:
        where: What has it, for the message.
        inertia: Inertia about the centre of mass [kg m^2], shape [3, 3].

    Raises:
        InputError: No body has it.
    """
    if not np.isfinite(inertia).all():
        raise InputError(f"{where}: its inertia is not finite; give ixx, iyy, izz, ixy, ixz, iyz [kg m^2]")
    least, middle, most = np.linalg.eigvalsh(0.5 * (inertia + inertia.T))
    moments = ", ".join(f"{value:.3g}" for value in (least, middle, most))
    slack = _ROUNDING * most
    if not most > 0:
        raise InputError(f"{where}: moves but has no inertia (principal moments {moments} kg m^2); valid: above 0")
    if least < -slack:
        raise InputError(f"{where}: principal moments of inertia are {moments} kg m^2; valid: none below 0")
    if most > least + middle + slack:
        raise InputError(
            f"{where}: principal moments of inertia are {moments} kg m^2, which no body has; valid: none above the sum "
            "of the other two"
        )
