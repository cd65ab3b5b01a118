# SPDX-License-Identifier: Apache-2.0
"""What a run's folder says of it: its settings, what its training took, and what was measured of it before."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core import artifacts
from neurodyn.core.config import from_dict, read_plain
from neurodyn.core.errors import InputError
from neurodyn.core.notices import notice
from neurodyn.core.verdict import Verdict, as_verdict
from neurodyn.evaluate.runs.comparison import Cost, RunFigures, Series, flat_settings
from neurodyn.learn.manifest import MANIFEST
from neurodyn.learn.metrics import read_metrics

KEPT = "compared.json"
"""What was measured of a run for comparisons, by what was asked; read again while the model is the same."""


def kept(
    folder: Path, question: dict[str, Any], measure: Callable[[], RunFigures], *, writable: bool, name: str
) -> RunFigures:
    """Return what was measured of a run in answer to a question, measured now if it was not.

    Args:
        folder: Folder of the run, in which answers are kept (`KEPT`).
        question: All that the answer depends on.
        measure: Measures it.
        writable: Whether answers may be written there.
        name: What the run is called now.
    """
    path, key = folder / KEPT, json.dumps(question, sort_keys=True, default=str)
    known: dict[str, Any] = {}
    try:
        known = artifacts.read_json(path) if path.is_file() else {}
        if key in known:
            return msgspec.structs.replace(from_dict(known[key], RunFigures, str(path)), run=name)
    except (InputError, TypeError) as error:
        notice(f"{path}: is measured again ({error})")
        known = {}
    found = measure()
    if writable:
        artifacts.write_sealed(path, {**known, key: found.plain()})
    return found


def run_settings(folder: Path) -> tuple[dict[str, Any], int | None]:
    """Return how a run was made by dotted names, and its seed; data and bases of equal content are equal.

    Args:
        folder: Run directory, or folder of a policy.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        return {}, None
    plain = read_plain(path)
    plain = dict(plain) if isinstance(plain, dict) else {}
    plain.pop("versions", None)
    sums = _checksums(folder)
    for name in ("data", "base", "starts", "dynamics"):
        if plain.get(name):
            plain[name] = _named(plain[name], sums)
    settings = plain.pop("settings", {})
    seed = settings.pop("seed", None) if isinstance(settings, dict) else None
    made = {name: value for name, value in plain.items() if value not in (None, "")}
    return flat_settings({**made, **(settings if isinstance(settings, dict) else {})}), seed


def training_of(folder: Path) -> tuple[Cost, Series | None, Verdict]:
    """Return what a training took, its held-out score over time, and whether it came to its end.

    Args:
        folder: Run directory, or folder of a policy.
    """
    lines = read_metrics(folder)
    timed = [line for line in lines if line.get("seconds") is not None]
    scored = [line for line in timed if line.get("rollout_score") is not None]
    series = None
    if len(scored) > 1:
        x, y = [line["seconds"] for line in scored], [line["rollout_score"] for line in scored]
        series = Series(x=x, y=y, x_label="training time [s]")
    last = timed[-1] if timed else {}
    seconds, cpu = last.get("seconds"), last.get("cpu_seconds")
    found = folder / "identification.json"
    if found.is_file():  # which takes longer than the training of its networks
        seconds, cpu = artifacts.read_json(found).get("seconds"), None
    trained = as_verdict(next((line["verdict"] for line in reversed(lines) if "verdict" in line), "ok"))
    if timed and not found.is_file() and not any(line.get("finished") for line in lines):
        trained = Verdict("warning", "the training did not come to its end", "go on with it with --resume")
    return Cost(seconds=seconds, cpu_seconds=cpu, steps=last.get("step")), series, trained


def size_of(folder: Path) -> int:
    """Return the size of the files in a folder [bytes]."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of what a training read, by name, as its manifest says."""
    path = folder / MANIFEST
    plain = artifacts.read_json(path) if path.is_file() else {}
    return {**plain.get("files", {}), **plain.get("models", {})}


def _named(value: Any, sums: dict[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_named(entry, sums) for entry in value]
    digest = sums.get(str(value), "").removeprefix("sha256:")[:8]
    return f"{Path(str(value)).name} ({digest})" if digest else str(value)
