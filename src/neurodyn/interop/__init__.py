# SPDX-License-Identifier: Apache-2.0
"""Interfaces to other projects: checkpoints, simulators, file formats, and ONNX."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.interop.c_code.export import export_code
    from neurodyn.interop.checkpoints import import_model
    from neurodyn.interop.formats import CODE, MODEL_LAYOUTS, POLICY_FORMATS, SIMULATORS, WRITERS
    from neurodyn.interop.identified import Exported, export_identified
    from neurodyn.interop.onnx import export_model, export_policy
    from neurodyn.interop.policies import import_policy

__all__ = [
    "CODE", "MODEL_LAYOUTS", "POLICY_FORMATS", "SIMULATORS", "WRITERS", "Exported", "export_code", "export_identified",
    "export_model", "export_policy", "import_model", "import_policy",
]  # fmt: skip
