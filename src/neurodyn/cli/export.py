# SPDX-License-Identifier: Apache-2.0
"""`neurodyn export`: a model or a policy as an ONNX file."""

from pathlib import Path
from typing import Annotated

import tyro


def export(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    out: Path | None = None,
) -> None:
    """Write a model, or a policy, as an ONNX file that says what its inputs and outputs are.

    Args:
        run: Run directory, pretrained:NAME, the folder of a policy, or pretrained-policy:NAME.
        out: File to write; by default model.onnx in the run directory, policy.onnx in that of a policy, or NAME.onnx
            here for what is pretrained.
    """
    from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY, require_writable

    is_policy = run.startswith(PRETRAINED_POLICY) or (Path(run) / "policy.safetensors").is_file()
    if out is None and run.startswith((PRETRAINED, PRETRAINED_POLICY)):
        out = Path(f"{run.partition(':')[2]}.onnx")
    path = out if out is not None else Path(run) / ("policy.onnx" if is_policy else "model.onnx")
    if is_policy:
        from neurodyn.policy.export import export_policy

        require_writable(path)
        difference = export_policy(run, path)
    else:
        from neurodyn.dynamics.artifact import load
        from neurodyn.dynamics.export import export_model

        model = load(run)
        require_writable(path)
        difference = export_model(model, path)
    print(f"differs from the {'policy' if is_policy else 'model'} by at most {difference:.1e} in ONNX Runtime: {path}")
