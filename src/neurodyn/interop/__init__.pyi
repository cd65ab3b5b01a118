# SPDX-License-Identifier: Apache-2.0
from . import gymnasium as gymnasium
from .formats import (
    CODE as CODE,
    MODEL_LAYOUTS as MODEL_LAYOUTS,
    POLICY_FORMATS as POLICY_FORMATS,
    SIMULATOR_FORMATS as SIMULATOR_FORMATS,
    WRITERS as WRITERS,
    Exported as Exported,
    export_code as export_code,
    export_identified as export_identified,
    import_model as import_model,
    replay as replay,
)
from .onnx import export_model as export_model, export_policy as export_policy
from .policies import import_policy as import_policy
from .replays import Replay as Replay
