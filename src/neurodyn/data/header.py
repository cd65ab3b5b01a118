# SPDX-License-Identifier: Apache-2.0
"""The header of a trajectory store: origin and layout of its data.

It is written as HDF5 attributes: once as JSON, which is what is read back, and once as plain attributes (robot, joint
names, units, dt, seed, versions), which any HDF5 viewer shows.
"""

import json
import zlib
from enum import IntEnum
from typing import Any, Literal

import h5py
import msgspec
import numpy as np
from numpy.typing import ArrayLike

from neurodyn.core.config import Config, from_dict, to_dict
from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.core.description.controllers import Controller
from neurodyn.core.description.fingerprint import Fingerprint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.sensors import Stream, stream_columns
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError

FORMAT = "neurodyn trajectories"
_CRC = "crc32"
_ELSEWHERE = (h5py.ExternalLink, h5py.SoftLink)
_OWN = "expected a store that holds its own data"
SCHEMA_VERSION = 1

EPISODE = np.dtype(
    [
        ("start", "<i8"),  # row of the episode's first state
        ("length", "<i4"),  # transitions; the episode has length + 1 rows
        ("world", "<i4"),  # world of the simulation; -1 where there is none
        ("run", "<i4"),  # index into the header's runs; -1 where there is none
        ("group", "<i2"),  # index into the header's groups; -1 where there is none
        ("status", "i1"),  # Status
        ("split", "i1"),  # Split
    ]
)


class Status(IntEnum):
    """How an episode ended.

    COMPLETE: at its full length, by a time limit. NOT_FINITE, OUT_OF_RANGE: cut short before the state in which a
    simulation diverged, or became implausible.
    LOG: where a recording ended. TERMINATED: in what its task calls a failure.
    """

    COMPLETE = 0
    NOT_FINITE = 1
    OUT_OF_RANGE = 2
    LOG = 3
    TERMINATED = 4


class Split(IntEnum):
    """What an episode is for."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


class StoreHeader(Config, frozen=True, rename={"contact_points": "probes", "simulator": "teacher"}):
    """Origin and layout of the trajectories in a store.

    Attributes:
        spec: Names, order, units and dt of state and control.
        source: "teacher" for simulated trajectories, "log" for measured ones.
        simulator: Solver, substeps and sampling of the simulator; None for logs.
        seed: Seed of the sampling; None for logs.
        fingerprint: Identity of the simulated articulation; None for logs.
        sources: Digest of what the simulated robot was built from (`robots.bundle.source_digest`); None for logs, and
            where it was not noted.
        scene: Shapes around the robot, at a pose of its own in each episode; None where unknown or in free space.
        contact_points: Points of the robot that are measured against the scene; None where there are none.
        mechanism: The robot's tree of links; None where it is unknown.
        versions: Versions of the packages that made the data.
        notes: What the reader did and measured: files, rates, alignment.
        groups: Names of the groups that episodes belong to.
        runs: Names of the runs that episodes were cut from.
        streams: What was measured beside the joints, in the order of its columns.
        controller: What made torques of the controls, where these are targets and it is known.
        schema_version: Version of the file layout.
    """

    spec: StateSpec
    source: Literal["teacher", "log"]
    simulator: dict[str, Any] | None = None
    seed: int | None = None
    fingerprint: Fingerprint | None = None
    sources: str | None = None
    scene: Scene | None = None
    contact_points: ContactPointLayout | None = None
    mechanism: Mechanism | None = None
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    groups: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    streams: tuple[Stream, ...] = ()
    controller: Controller | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def robot(self) -> str:
        """Name of the robot."""
        return self.spec.robot

    def differences(self, other: "StoreHeader") -> list[str]:
        """List, in words, the differences of `other` from this header; what robots were built from may differ."""
        mine, theirs = (_flatten({**_plain(header), "sources": None}) for header in (self, other))
        absent = "absent"
        return [
            f"{key} is {theirs.get(key, absent)} instead of {mine.get(key, absent)}"
            for key in {**mine, **theirs}
            if mine.get(key, absent) != theirs.get(key, absent)
        ]


def episode_table(lengths: ArrayLike, **fields: Any) -> np.ndarray:
    """Return EPISODE records of episodes that lie one after another.

    Args:
        lengths: Transitions of each episode, shape [E].
        **fields: Other fields, one value for all or one each; world, run and group are -1 unless given.
    """
    lengths = np.asarray(lengths, np.int64)
    table = np.zeros(len(lengths), EPISODE)
    values = {"world": -1, "run": -1, "group": -1, "length": lengths, "start": np.cumsum(lengths + 1) - lengths - 1}
    for name, value in {**values, **fields}.items():
        table[name] = value
    return table


def write_header(file: h5py.File, header: StoreHeader) -> None:
    """Write `header` into an open file: as JSON, and as attributes for people.

    All texts have fixed lengths. Those of variable length lie in HDF5's global heap, whose reader can run for ever on
    a damaged file.
    """
    spec = header.spec
    text = json.dumps(_plain(header)).encode()
    file.create_dataset("header", data=np.frombuffer(text, dtype=np.uint8)).attrs[_CRC] = zlib.crc32(text)
    attributes = {
        "format": FORMAT,
        "schema_version": header.schema_version,
        "robot": spec.robot,
        "source": header.source,
        "dt_s": spec.dt,
        "joint_names": [joint.name for joint in spec.joints],
        "q_names": list(spec.q_names),
        "q_units": list(spec.q_units),
        "qd_names": list(spec.qd_names),
        "control_names": list(spec.controls),
        "control_kind": spec.control_kind,
        "channel_names": [channel.name for channel in spec.channels],
        "contact_names": list(spec.contacts),
        "measured_names": list(stream_columns(header.streams)),
        "seed": "none" if header.seed is None else header.seed,
        "versions": json.dumps(header.versions),
    }
    for name, value in attributes.items():
        file.attrs[name] = _fixed_length(value)


def _fixed_length(value: Any) -> Any:
    """Return a value whose texts have a fixed length."""
    if isinstance(value, str):
        return np.bytes_(value.encode())
    if isinstance(value, list):
        return np.array([item.encode() for item in value], dtype="S") if value else h5py.Empty("S1")
    return value


def read_header(file: h5py.File, where: str) -> StoreHeader:
    """Read the header of an open file.

    Raises:
        InputError: The file is no store, or one of another schema version.
    """
    if _text(file.attrs.get("format")) != FORMAT:
        raise InputError(
            f"{where}: an HDF5 file, but no trajectory store; expected one written by `neurodyn generate` or "
            "`neurodyn import`"
        )
    schema = file.attrs.get("schema_version")
    if schema != SCHEMA_VERSION:
        raise InputError(f"{where}: has schema version {schema}; this version of neurodyn reads {SCHEMA_VERSION}")
    old = file.attrs.get("header")  # where version 0.1 had it
    text = _checked_text(dataset(file, "header"), where) if old is None else _text(old)
    return from_dict(json.loads(text), StoreHeader, f"{where} (header)")


def _checked_text(header: h5py.Dataset, where: str) -> str:
    text, wanted = bytes(header[()]), header.attrs.get(_CRC)  # older stores have no checksum
    if wanted is not None and zlib.crc32(text) != int(wanted):
        raise InputError(f"{where}: damaged store: its header changed; copy it again from where it is whole")
    return text.decode()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset of an open file.

    Raises:
        InputError: The file has none of that name.
    """
    if isinstance(file.get(name, getlink=True), _ELSEWHERE):
        raise InputError(f"{file.filename}: {name!r} is a link to elsewhere, which is not followed; {_OWN}")
    values = file.get(name)
    if isinstance(values, h5py.Dataset) and (values.external or values.is_virtual):
        raise InputError(f"{file.filename}: {name!r} lies in another file, which is not read; {_OWN}")
    if not isinstance(values, h5py.Dataset):
        raise InputError(f"{file.filename}: damaged store: it has no dataset {name!r}; write it again")
    return values


def _plain(header: StoreHeader) -> dict[str, Any]:
    return json.loads(json.dumps(to_dict(header)))


def _flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(tree, dict | list) and tree:
        pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
        flat: dict[str, Any] = {}
        for key, value in pairs:
            flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: tree}
