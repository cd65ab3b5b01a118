# SPDX-License-Identifier: Apache-2.0
"""What a robot, a mechanism and a scene are, as plain data; artifacts, configuration and errors."""

from neurodyn.core.lazy import lazy

with lazy(__name__):
    from neurodyn.core.artifacts import pretrained_names, read_json, write_json
    from neurodyn.core.config import Config, from_dict, read_config, to_dict
    from neurodyn.core.description.actuator_network import ActuatorNetwork
    from neurodyn.core.description.blueprint import Augmentation, Blueprint
    from neurodyn.core.description.body_contacts import BodyContact, BodyShape, Support
    from neurodyn.core.description.contact_points import ChainJoint, ContactPoint, ContactPointLayout
    from neurodyn.core.description.controllers import GAINS, Controller
    from neurodyn.core.description.drive import DRIVE_LAWS, Drive, DriveLaw
    from neurodyn.core.description.fingerprint import Fingerprint
    from neurodyn.core.description.mechanism import Link, Mechanism
    from neurodyn.core.description.parameter import Parameter, select_parameters
    from neurodyn.core.description.scene import Box, Capsule, Cylinder, Heightfield, Mesh, Plane, Scene, Sphere, Terrain
    from neurodyn.core.description.sensors import SENSOR_KINDS, Part, Sensor, Stream
    from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
    from neurodyn.core.description.structures import STRUCTURES, Structure
    from neurodyn.core.errors import InputError, MismatchError, NeurodynError
    from neurodyn.core.progress import Progress, showing, tracked
    from neurodyn.core.seeds import derive_seed, generator

__all__ = [
    "DRIVE_LAWS", "GAINS", "SENSOR_KINDS", "STRUCTURES", "ActuatorNetwork", "Augmentation", "Blueprint", "BodyContact",
    "BodyShape", "Box", "Capsule", "ChainJoint", "Channel", "Config", "ContactPoint", "ContactPointLayout",
    "Controller", "Cylinder", "Drive", "DriveLaw", "Fingerprint", "Heightfield", "InputError", "JointSpec", "Link",
    "Mechanism", "Mesh", "MismatchError", "NeurodynError", "Parameter", "Part", "Plane", "Progress", "Scene", "Sensor",
    "Sphere", "StateSpec", "Stream", "Structure", "Support", "Terrain", "derive_seed", "from_dict", "generator",
    "pretrained_names", "read_config", "read_json", "select_parameters", "showing", "to_dict", "tracked", "write_json",
]  # fmt: skip
