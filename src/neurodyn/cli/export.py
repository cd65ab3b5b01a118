# SPDX-License-Identifier: Apache-2.0
"""`neurodyn export`: models and policies as ONNX, identified robots for other simulators, data for other tools."""

from pathlib import Path
from typing import Annotated

from neurodyn.cli.terminal.flags import one_of
from neurodyn.interop.formats import POLICY_FORMATS, SIMULATORS, WRITERS


def export(
    run: str,
    /,
    *,
    out: Path | None = None,
    to: Annotated[str | None, one_of(WRITERS, SIMULATORS, POLICY_FORMATS)] = None,
) -> None:
    """Write a model or a policy as an ONNX file, what was identified of a robot for a simulator, or data for others.

    Args:
        run: Run directory, pretrained:NAME, the folder of a policy, or pretrained-policy:NAME; or a dataset (.h5), of
            measured, simulated or predicted trajectories.
        out: File to write; by default model.onnx in the run directory, policy.onnx in that of a policy, or NAME.onnx
            here for what is pretrained. Of a policy for rsl_rl, a folder, by default POLICY/rsl-rl. Of a dataset, a
            file (mcap) or folder (lerobot), by default beside it. Of an identified robot, a folder, by default
            RUN/newton, RUN/mjcf and so on.
        to: Of a run, the simulator: newton, isaaclab, mjcf, urdf or mjlab; without it, ONNX. Of a dataset, the format:
            lerobot (a LeRobot data set, v3.0) or mcap (an MCAP file of ROS 2 messages). Of a policy: rsl-rl (a
            checkpoint that Isaac Lab's play.py --checkpoint loads).

    Example:
        neurodyn export runs/cartpole
        neurodyn export walks.h5 --to lerobot --out walks
    """
    is_data = Path(run).suffix.lower() in {".h5", ".hdf5"}
    if to is not None and to in SIMULATORS and not is_data:
        _export_identified(run, to, out)
    elif to is not None and to in POLICY_FORMATS and not is_data:
        _export_policy(run, to, out)
    elif to is not None or is_data:
        _export_data(Path(run), to, out)
    else:
        _export_onnx(run, out)


def _export_onnx(run: str, out: Path | None) -> None:
    """Write a model or a policy as an ONNX file."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY, require_writable

    what = "policy" if run.startswith(PRETRAINED_POLICY) or (Path(run) / "policy.safetensors").is_file() else "model"
    if out is None:
        ships = run.startswith((PRETRAINED, PRETRAINED_POLICY))
        out = Path(f"{run.partition(':')[2]}.onnx") if ships else Path(run) / f"{what}.onnx"
    if what == "policy":
        from neurodyn.interop.onnx import export_policy

        require_writable(out)
        with ProgressBar(f"exporting {run}"):
            difference = export_policy(run, out)
    else:
        from neurodyn.dynamics.artifact import load
        from neurodyn.interop.onnx import export_model

        with ProgressBar(f"exporting {run}"):
            model = load(run)
            require_writable(out)
            difference = export_model(model, out)
    print(f"differs from the {what} by at most {difference:.1e} in ONNX Runtime: {out}")


def _export_policy(policy: str, to: str, out: Path | None) -> None:
    """Write a policy as the checkpoint of another trainer."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import PRETRAINED_POLICY

    ships = policy.startswith(PRETRAINED_POLICY)
    beside = Path(f"{policy.removeprefix(PRETRAINED_POLICY)}-{to}") if ships else Path(policy) / to
    with ProgressBar(f"exporting {policy}"):
        written = POLICY_FORMATS[to](policy, out or beside)
    print(f"checkpoint: {written}; its runner's settings: params/agent.yaml beside it")


def _export_data(data: Path, to: str | None, out: Path | None) -> None:
    """Write a dataset in the format of other tools."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.errors import InputError, choices
    from neurodyn.data.store import Store

    if to is None or to not in WRITERS:
        raise InputError(f"{data}: is a dataset; say in which format with --to; valid: {choices(WRITERS)}")
    store = Store.open(data)
    path = out or data.with_suffix(f".{to}")
    with ProgressBar(f"writing {path}"):
        WRITERS[to](store, path)
    print(f"{store.transitions:,} frames in {len(store.table):,} episodes: {path}")


def _export_identified(run: str, to: str, out: Path | None) -> None:
    """Write what was identified of a robot for a simulator, and say what was."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.interop.identified import export_identified

    with ProgressBar(f"exporting {run}"):
        exported = export_identified(run, to, out)
    for what, names in (("holds", exported.placed), (f"left out ({to} has no place for them)", exported.left_out)):
        if names:
            print(f"{what}: {', '.join(names)}")
    print(f"{', '.join(exported.files)}: {exported.folder}")
