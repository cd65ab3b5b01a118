# SPDX-License-Identifier: Apache-2.0
from .activations import ACTIVATIONS as ACTIVATIONS, Activation as Activation
from .artifacts import pretrained_names as pretrained_names, read_json as read_json, write_json as write_json
from .config import Config as Config, from_dict as from_dict, read_config as read_config, to_dict as to_dict
from .description.actuation import (
    BodyWrench as BodyWrench,
    DriveState as DriveState,
    FrameOffset as FrameOffset,
    Muscle as Muscle,
    Pivot as Pivot,
    SliderCrank as SliderCrank,
    TurningJoint as TurningJoint,
)
from .description.blueprint import (
    STRUCTURES as STRUCTURES,
    Augmentation as Augmentation,
    Blueprint as Blueprint,
    Structure as Structure,
)
from .description.contacts import (
    BodyContact as BodyContact,
    BodyShape as BodyShape,
    ChainJoint as ChainJoint,
    ContactPoint as ContactPoint,
    ContactPointLayout as ContactPointLayout,
    Support as Support,
)
from .description.couplings import (
    Equality as Equality,
    Obstacle as Obstacle,
    SidePoint as SidePoint,
    Strand as Strand,
    Tendon as Tendon,
    Waypoint as Waypoint,
)
from .description.drive import DRIVE_KINDS as DRIVE_KINDS, Drive as Drive, DriveLaw as DriveLaw
from .description.drive_network import DriveNetwork as DriveNetwork
from .description.elements import (
    FORCE_ELEMENTS as FORCE_ELEMENTS,
    Attachment as Attachment,
    ForceElement as ForceElement,
    ForceElementKind as ForceElementKind,
)
from .description.mechanism import Fingerprint as Fingerprint, Link as Link, Mechanism as Mechanism
from .description.parameter import Parameter as Parameter, select_parameters as select_parameters
from .description.scene import (
    Box as Box,
    Capsule as Capsule,
    Cylinder as Cylinder,
    Heightfield as Heightfield,
    Mesh as Mesh,
    Plane as Plane,
    Scene as Scene,
    Sphere as Sphere,
    Terrain as Terrain,
)
from .description.sensors import (
    SENSOR_KINDS as SENSOR_KINDS,
    Part as Part,
    Sensor as Sensor,
    SensorKind as SensorKind,
    Stream as Stream,
)
from .description.spec import Channel as Channel, JointSpec as JointSpec, StateSpec as StateSpec
from .errors import InputError as InputError, MismatchError as MismatchError, NeurodynError as NeurodynError
from .progress import Progress as Progress, showing as showing, tracked as tracked
from .seeds import derive_seed as derive_seed, generator as generator
