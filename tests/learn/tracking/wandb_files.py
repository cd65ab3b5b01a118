# SPDX-License-Identifier: Apache-2.0
"""What W&B wrote offline: its own messages (wandb.proto), read from RUN/wandb/offline-run-*/run-ID.wandb.

The file is a log of LevelDB: blocks of 32 KiB with records of checksum, length and kind (whole, first, middle, last).
"""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK, _HEADER = 32768, 7
_WHOLE, _LAST = 1, 4


@dataclass
class Written:
    """What one process wrote of a run."""

    id: str = ""
    name: str = ""
    group: str = ""
    resumed: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    commit: str = ""
    exit_code: int | None = None


def written(run: Path, seconds: float = 60.0) -> list[Written]:
    """Return what is in the files of a run, the oldest first.

    W&B's own process may still write the last lines when the training has ended: they are waited for.
    """
    paths, until = sorted(run.glob("wandb/offline-run-*/*.wandb")), time.monotonic() + seconds
    while any(_read(path).exit_code is None for path in paths) and time.monotonic() < until:
        time.sleep(0.1)
    return [_read(path) for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns)]


def _read(path: Path) -> Written:
    found = Written()
    for record in _records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.id, found.name, found.group = record.run.run_id, record.run.display_name, record.run.run_group
            found.resumed = record.run.resume
            found.commit = record.run.git.commit or found.commit
            found.config |= _items(record.run.config.update)
        elif kind == "config":
            found.config |= _items(record.config.update)
        elif kind == "environment":
            found.commit = record.environment.git.commit or found.commit
        elif kind == "history":
            found.history.append(_items(record.history.item))
        elif kind == "summary":
            found.summary |= _items(record.summary.update)
        elif kind == "artifact":
            names = [entry.path for entry in record.artifact.manifest.contents]
            found.artifacts.append((record.artifact.type, names, list(record.artifact.aliases)))
        elif kind == "files":
            found.files += [entry.path for entry in record.files.files]
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _items(items: Any) -> dict[str, Any]:
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def _records(path: Path) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    data, at, parts = path.read_bytes(), _HEADER, b""
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + _HEADER])
        body, at = data[at + _HEADER : at + _HEADER + size], at + _HEADER + size
        parts = body if kind < 3 else parts + body
        if kind in (_WHOLE, _LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
