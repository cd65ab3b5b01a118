# SPDX-License-Identifier: Apache-2.0
"""Robots, mechanisms and scenes as plain data; artifacts, configuration and errors."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.core.activations import ACTIVATIONS, Activation
    from neurodyn.core.artifacts import pretrained_names, read_json, write_json
    from neurodyn.core.config import Config, from_dict, read_config, to_dict
    from neurodyn.core.description.actuation import (
        BodyWrench,
        DriveState,
        FrameOffset,
        Muscle,
        SliderCrank,
        TurningJoint,
    )
    from neurodyn.core.description.blueprint import STRUCTURES, Augmentation, Blueprint, Structure
    from neurodyn.core.description.contacts import (
        BodyContact,
        BodyShape,
        ChainJoint,
        ContactPoint,
        ContactPointLayout,
        Support,
    )
    from neurodyn.core.description.couplings import Equality, Obstacle, SidePoint, Strand, Tendon, Waypoint
    from neurodyn.core.description.drive import (
        DRIVE_LAWS,
        GAINS,
        Controller,
        Drive,
        DriveLaw,
        DriveNetwork,
    )
    from neurodyn.core.description.elements import FORCE_ELEMENTS, Attachment, ForceElement, ForceElementKind
    from neurodyn.core.description.mechanism import Fingerprint, Link, Mechanism
    from neurodyn.core.description.parameter import Parameter, select_parameters
    from neurodyn.core.description.scene import Box, Capsule, Cylinder, Heightfield, Mesh, Plane, Scene, Sphere, Terrain
    from neurodyn.core.description.sensors import SENSOR_KINDS, Part, Sensor, SensorKind, Stream
    from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
    from neurodyn.core.errors import InputError, MismatchError, NeurodynError
    from neurodyn.core.progress import Progress, showing, tracked
    from neurodyn.core.seeds import derive_seed, generator

__all__ = [
    "ACTIVATIONS", "DRIVE_LAWS", "FORCE_ELEMENTS", "GAINS", "SENSOR_KINDS", "STRUCTURES", "Activation", "Attachment",
    "Augmentation", "Blueprint", "BodyContact", "BodyShape", "BodyWrench", "Box", "Capsule", "ChainJoint", "Channel",
    "Config", "ContactPoint", "ContactPointLayout", "Controller", "Cylinder", "Drive", "DriveLaw", "DriveNetwork",
    "DriveState", "Equality", "Fingerprint", "ForceElement", "ForceElementKind", "FrameOffset", "Heightfield",
    "InputError", "JointSpec", "Link", "Mechanism", "Mesh", "MismatchError", "Muscle", "NeurodynError", "Obstacle",
    "Parameter", "Part", "Plane", "Progress", "Scene", "Sensor", "SensorKind", "SidePoint", "SliderCrank", "Sphere",
    "StateSpec", "Strand", "Stream", "Structure", "Support", "Tendon", "Terrain", "TurningJoint", "Waypoint",
    "derive_seed", "from_dict", "generator", "pretrained_names", "read_config", "read_json", "select_parameters",
    "showing", "to_dict", "tracked", "write_json",
]  # fmt: skip
