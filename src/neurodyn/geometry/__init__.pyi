# SPDX-License-Identifier: Apache-2.0
from .ground import Ground as Ground
from .proximity import ProximityQuery as ProximityQuery, Readings as Readings
from .solids import terrain_heights as terrain_heights
