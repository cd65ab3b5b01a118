# SPDX-License-Identifier: Apache-2.0
"""Shapes of arrays as annotations of public functions; axes of the same name have the same size in one call.

`*#batch` stands for any number of leading axes that broadcast. Tests run the functions with their annotations checked.
"""

from jaxtyping import Bool, Float
from torch import Tensor

Quaternions = Float[Tensor, "*#batch 4"]
Vectors = Float[Tensor, "*#batch 3"]
Matrices = Float[Tensor, "*#batch 3 3"]
Rows = Float[Tensor, "*#batch vectors 3"]
Positions = Float[Tensor, "*#batch nq"]
Velocities = Float[Tensor, "*#batch nv"]
Torques = Float[Tensor, "*#batch nu"]
Controls = Float[Tensor, "worlds frames nu"]
WorldMask = Bool[Tensor, " worlds"]
"""Which of the worlds."""
