# SPDX-License-Identifier: Apache-2.0
"""Settings of the controller of a quadruped."""

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import require

Weights = tuple[float, float, float, float, float, float, float, float, float, float, float, float]


class MpcSettings(Config, frozen=True):
    """How a quadruped is controlled; by default as in Di Carlo et al. (IROS 2018) and NeuralSim.

    Attributes:
        horizon: Steps of the prediction.
        step: Length of one of them [s].
        weights: Weights of squared errors of roll, pitch, yaw, x, y, z, angular velocity and velocity.
        effort: Weight of squared forces in weights of the robot, of which 0.18 is 1e-5/N^2 for an A1.
        friction: Coefficient of friction of the pyramids; below that of the ground.
        greatest_force: Greatest vertical force of a foot, in weights of the robot.
        solver: Name of a solver of quadratic programs (`control.mpc.quadratic_program.SOLVERS`).
        interval: Time between two decisions on forces [s].
        clearance: Height to which feet are lifted, in heights of the centre of mass; None for 0.3, or less
            where the drives do not afford that (`control.mpc.swing`).
        foot_gain: Placement of feet by the error of velocity [s].
        swing_frequency: Natural frequency of the control of swinging feet [rad/s]; None for 40, or less likewise. Where
            both are given, commands are not limited either.
        swing_damping: Its damping ratio.
        yaw_reach: Greatest error of heading that is corrected at once [rad].
    """

    horizon: int = 10
    step: float = 0.025
    weights: Weights = (5.0, 5.0, 0.2, 0.0, 0.0, 10.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0)
    effort: float = 0.18
    friction: float = 0.45
    greatest_force: float = 1.0
    solver: str = "daqp"
    interval: float = 0.01
    clearance: float | None = None
    foot_gain: float = 0.1
    swing_frequency: float | None = None
    swing_damping: float = 0.7
    yaw_reach: float = 0.5

    def __post_init__(self) -> None:
        require(self.horizon >= 1, "horizon", self.horizon, "at least 1")
        for name in ("step", "effort", "friction", "greatest_force", "interval", "swing_frequency"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "above 0")
        require_numbers(self)
