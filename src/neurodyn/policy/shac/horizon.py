# SPDX-License-Identifier: Apache-2.0
r"""The horizon of AHAC: as long as gradients through it can be used.

AHAC (Georgiev et al., ICML 2024, arXiv 2405.17784) shortens the window where a bound on the gradients is violated, and
lengthens it where there is room. There the bound is on the norms of the dynamics' Jacobians, here on what comes of
them: the explosion E of the window's gradients (`GradientWatch.explosion`) shall be C.

$$\log H \leftarrow \log H - \kappa\,\mathrm{clip}(\log(E / C), -1, 1)$$
"""

import math

from neurodyn.policy.shac.settings import AhacSettings


class AdaptiveHorizon:
    """Frames of a window, updated after each.

    Attributes:
        value: The frames, before rounding.
    """

    def __init__(self, settings: AhacSettings) -> None:
        """Begin with the settings' horizon."""
        self._settings = settings
        self.value = float(settings.horizon)

    @property
    def frames(self) -> int:
        """Frames of the next window."""
        return round(self.value)

    def update(self, explosion: float) -> None:
        """Follow the explosion of a window's gradients; one that is not finite counts as far beyond the bound."""
        settings = self._settings
        excess = math.log(explosion / settings.explosion) if 0 < explosion < math.inf else 1.0
        value = self.value * math.exp(-settings.adaptation * min(max(excess, -1.0), 1.0))
        self.value = min(max(value, float(settings.least)), float(settings.most))
