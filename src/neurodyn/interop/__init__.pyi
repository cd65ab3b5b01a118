# SPDX-License-Identifier: Apache-2.0
from . import gymnasium as gymnasium
from .c_code.export import export_code as export_code
from .checkpoints import import_model as import_model
from .formats import (
    CODE as CODE,
    MODEL_LAYOUTS as MODEL_LAYOUTS,
    POLICY_FORMATS as POLICY_FORMATS,
    SIMULATORS as SIMULATORS,
    WRITERS as WRITERS,
)
from .identified import Exported as Exported, export_identified as export_identified
from .onnx import export_model as export_model, export_policy as export_policy
from .policies import import_policy as import_policy
