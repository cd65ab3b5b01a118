# SPDX-License-Identifier: Apache-2.0
from .articulated import Tree as Tree
from .contacts.contact_model import ContactModel as ContactModel, Contacts as Contacts
from .drives.drive import pd_torque as pd_torque
from .elements import ElementForces as ElementForces, ElementStep as ElementStep
from .engine import CONTACT_MODELS as CONTACT_MODELS, Engine as Engine, EngineConfig as EngineConfig, nominal as nominal
from .integrators import INTEGRATORS as INTEGRATORS, IntegrationStep as IntegrationStep, displace as displace
from .motion import FreeMotion as FreeMotion
from .points import wrenches as wrenches
from .sensors import SensorFrame as SensorFrame
from .structures import FORMS as FORMS, ActingNetwork as ActingNetwork
from .trace import maximum as maximum
