# SPDX-License-Identifier: Apache-2.0
"""The log of a robot: a CSV that grows by a line a frame, so that it is whole up to the frame in which anything died.

Beside it lies a column map, with which `neurodyn import` reads it. The first columns are `episode` and `time` [s], then
q, qd and the command that is sent in this state, and whatever else the robot measures.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from neurodyn.core import artifacts
from neurodyn.core.config import to_yaml
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, describe_os_error, unwritable
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.floating import FloatingColumns

_TAIL = 1 << 16


class RobotLog:
    """Appends frames to a log; each is handed to the operating system before the next begins."""

    def __init__(self, path: Path, spec: StateSpec) -> None:
        """Begin a log, or go on with one of the same robot after its last episode.

        Args:
            path: The CSV.
            spec: State and controls of the robot; its `control_kind` says what commands are.

        Raises:
            InputError: The file cannot be written.
        """
        self.path, self._spec = path, spec
        self.episode = -1
        self._head: list[str] | None = None
        self._file: int | None = None
        artifacts.require_writable(path)

    def begin(self, others: Sequence[str]) -> None:
        """Begin an episode; `others` are the columns of further measured values.

        Raises:
            InputError: The log that is there has other columns.
        """
        spec = self._spec
        state = [f"{kind}.{name}" for kind, names in _named(spec).items() for name in names]
        head = ["episode", "time", *state, *others]
        if self._file is None:
            self._open(head)
        elif head != self._head:
            raise InputError(f"{self.path}: observe() returns other values than in the first episode; valid: the same")
        self.episode += 1

    def write(
        self, time: float, q: Sequence[float], qd: Sequence[float], control: Sequence[float], others: Sequence[float]
    ) -> None:
        """Write a frame: a state, and the command that is sent in it."""
        cells = [f"{value:.9g}" for value in (time, *q, *qd, *control, *others)]
        self._append(",".join([str(self.episode), *cells]))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, line: str) -> None:
        assert self._file is not None
        try:
            os.write(self._file, f"{line}\n".encode())
        except OSError as error:
            raise unwritable(self.path, describe_os_error(error)) from None

    def _open(self, head: list[str]) -> None:
        artifacts.make_folder(self.path.parent)
        known = self.path.exists() and self.path.stat().st_size > 0
        if known:
            self._go_on(head)
        self._file, self._head = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), head
        if not known:
            self._append(",".join(head))
        artifacts.write_text(self.path.with_suffix(".yaml"), to_yaml(column_map(self._spec)))

    def _go_on(self, head: list[str]) -> None:
        """Read the number of the last episode, and drop a last line that is not whole."""
        with self.path.open("r+b") as file:
            found = file.readline().decode("utf-8", "replace").strip().split(",")
            if found != head:
                raise InputError(f"{self.path}: is a log of other values; valid: another file, or the same robot")
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            file.truncate(size - len(tail) + whole)
        last = tail[:whole].splitlines()[-1].split(b",")[0]
        self.episode = int(last) if last.isdigit() else -1


def _named(spec: StateSpec) -> dict[str, tuple[str, ...]]:
    return {"q": spec.q_names, "qd": spec.qd_names, "control": spec.controls}


def column_map(spec: StateSpec) -> ColumnMap:
    """Return the meaning of a log's columns."""
    floating: dict[str, FloatingColumns] = {}
    positions: dict[str, Column] = {}
    velocities: dict[str, Column] = {}
    for joint in spec.joints:
        q = tuple(f"q.{name}" for name in joint.q_names)
        qd = tuple(f"qd.{name}" for name in joint.qd_names)
        if joint.kind == "free":
            floating[joint.name] = FloatingColumns(
                position=q[:3], quaternion=q[3:], order="xyzw", linear_velocity=qd[:3], angular_velocity=qd[3:],
                angular_axes="world",
            )  # fmt: skip
        elif joint.kind == "ball":
            floating[joint.name] = FloatingColumns(
                quaternion=q, order="xyzw", angular_velocity=qd, angular_axes="world"
            )
        else:
            positions[joint.name], velocities[joint.name] = Column(q[0]), Column(qd[0])
    kind = "target" if spec.control_kind == "target" else "torque"
    return ColumnMap(
        format="csv", robot=spec.robot, time="time", episodes="episode", alignment=0.0, control_kind=kind,
        control={name: Column(f"control.{name}") for name in spec.controls}, q=positions,
        qd=velocities, floating=floating,
    )  # fmt: skip
