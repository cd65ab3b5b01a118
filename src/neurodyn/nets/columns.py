# SPDX-License-Identifier: Apache-2.0
"""What the inputs and outputs of a network of dynamics are, for networks that are more than a map between them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """Inputs and outputs of a robot of hinges and slides, in physical units.

    Outputs are the changes of all velocities in a frame, and by how much positions change beyond
    `dt (qd + kappa dqd)`.

    Attributes:
        dt: Length of a frame [s].
        kappa: Shares of the velocity changes that act within the frame, shape [nv].
        angles: Of each angle that enters by sine and cosine its velocity coordinate and the two columns.
        plain: Of each position that enters as it is its velocity coordinate and its column.
        velocities: First column of the velocities [rad/s or m/s].
        torques: First column of the torques [N m or N].
        driven: Velocity coordinate on which each torque acts.
    """

    dt: float
    kappa: tuple[float, ...]
    angles: tuple[tuple[int, int, int], ...]
    plain: tuple[tuple[int, int], ...]
    velocities: int
    torques: int
    driven: tuple[int, ...]
