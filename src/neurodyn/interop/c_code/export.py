# SPDX-License-Identifier: Apache-2.0
"""Export of a policy, a model or a drive as code: what a run holds, and the folder with its files."""

from pathlib import Path

from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY, atomic_folder, is_policy, require_writable
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.kinds import KINDS
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.c_code.source import CUnit, identifier
from neurodyn.interop.formats import CODE


def code_unit(run: str) -> CUnit:
    """Return what a run or a policy is in C, or raise an InputError if part of it has no form in C."""
    if is_policy(run):
        return policy_unit(run)
    model = load(run)
    return KINDS[model.kind].code.get(run)(model)


def export_code(run: str, to: str, out: Path | None = None) -> Path:
    """Write a policy or a model as code.

    Args:
        run: A run, "pretrained:NAME", the folder of a policy, or "pretrained-policy:NAME".
        to: Name of a language in `CODE`.
        out: Folder to write, which must not exist; None for RUN/TARGET, or ./NAME-TARGET for what is pretrained. Files
            and functions are called after the run.

    Returns:
        The folder.

    Raises:
        InputError: There is no such run, part of it has no form in C, or the folder exists.
    """
    ships = run.startswith((PRETRAINED, PRETRAINED_POLICY))
    own = run.partition(":")[2] if ships else Path(run).resolve().name
    folder = out if out is not None else Path(f"{own}-{to}") if ships else Path(run) / to
    if folder.exists():
        raise InputError(f"{folder}: exists; valid: the path of a folder that does not (--out)")
    require_writable(folder)
    texts = CODE[to](code_unit(run), identifier(own))
    with atomic_folder(folder) as partial:
        for file, text in texts.items():
            (partial / file).write_text(text, encoding="utf-8")
    return folder
