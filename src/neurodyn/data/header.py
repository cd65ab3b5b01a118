# SPDX-License-Identifier: Apache-2.0
"""Header of a trajectory store, its episode table, and the checksums of its arrays."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import h5py
import msgspec
import numpy as np
from numpy.typing import ArrayLike

from neurodyn.core.config import Aliases, Config, from_dict, to_dict
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.drive_tables import drives_of_controller
from neurodyn.core.description.mechanism import Fingerprint, Mechanism
from neurodyn.core.description.scene import Scene, Vector3
from neurodyn.core.description.sensors import Sensor, Stream, stream_columns
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding, doubts

FORMAT = "neurodyn trajectories"
_CRC = "crc32"
_ELSEWHERE = (h5py.ExternalLink, h5py.SoftLink)
_OWN = "expected a store that holds its own data"
SCHEMA_VERSION = 1

EPISODE = np.dtype(
    [
        ("start", "<i8"),  # row of the episode's first state
        ("length", "<i4"),  # transitions; the episode has length + 1 rows
        ("world", "<i4"),  # world of the simulation; -1 for none
        ("run", "<i4"),  # index into the header's runs; -1 for none
        ("group", "<i2"),  # index into the header's groups; -1 for none
        ("status", "i1"),  # Status
        ("split", "i1"),  # Split
    ]
)


class Status(IntEnum):
    """How an episode ended.

    COMPLETE: at full length, by a time limit. NOT_FINITE, OUT_OF_RANGE: cut before the state where the simulation
    diverged or became implausible. LOG: at the end of a recording. TERMINATED: by task failure.
    """

    COMPLETE = 0
    NOT_FINITE = 1
    OUT_OF_RANGE = 2
    LOG = 3
    TERMINATED = 4


class Split(IntEnum):
    """Purpose of an episode."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


SIMULATED = "simulated"
"""Note that marks a log as coming from the declared simulator."""


FINDINGS = "findings"
"""Note that holds what the import of a log found to doubt."""


class Delay(Config, frozen=True):
    """Measured delay of a stream of a log.

    Attributes:
        seconds: Delay [s]; positive if the stream is late.
        error: Its standard error [s]; None if it was not measured.
        applied: Shift of the stored data [s], which the column map declares: that much is no longer in them.
        usable: Whether it may serve as a prior: measured, significant or about 0, and plausible.
        reason: How it was found, or why it is not to be used, in words.
    """

    seconds: float
    error: float | None = None
    applied: float = 0.0
    usable: bool = False
    reason: str = ""


SITTING = ", part "
"""What the names of groups that are parts of one run, cut by pauses, have between run and number."""
CONTROL = "control"
"""Stream of the commands in a header's `delays`: how long after a command the motion follows it."""


class StoreHeader(Config, frozen=True, rename={"contact_points": "probes", "simulator": "teacher"}):
    """Origin and layout of the trajectories in a store.

    Attributes:
        spec: Names, order, units and dt of state and control.
        source: "teacher" for simulated trajectories, "log" for measured ones.
        simulator: Solver, substeps and sampling of the simulator; None for logs.
        seed: Seed of the sampling; None for logs.
        fingerprint: Fingerprint of the simulated articulation; None for logs.
        sources: Digest of the files the simulated robot was built from (`robots.assets.source_digest`); None for logs
            and if not recorded.
        scene: Shapes around the robot, placed by a pose in each episode; None if unknown or in free space.
        contact_points: Contact points of the robot; None if it has none.
        mechanism: The robot's tree of links; None if unknown.
        versions: Versions of the packages that made the data.
        notes: The reader's notes: files, rates, alignment.
        groups: Names of the groups that episodes belong to; those of a single run with pauses hold `SITTING`.
        runs: Names of the runs that episodes were cut from.
        streams: Sensor streams, in the order of their columns.
        drives: Drives, by joint or pattern, that follow target controls; empty if controls are torques or they are
            unknown.
        delays: Measured delays by stream (`CONTROL`, "qd"), of a log. They are quantities of the robot, and stay in the
            data but for the part that was `applied`.
        base: Whether pose and velocity of a floating base were "measured", are "unmeasured" (NaN in the rows), or were
            "estimated" from other readings.
        sensors: Where the sensors of an estimated base sit, by name; empty otherwise.
        parameters: Declared values of the quantities that vary between episodes, by name, in column order; empty if
            none does.
        schema_version: Version of the file layout.
    """

    aliases: ClassVar[Aliases] = {"controller": ("drives", drives_of_controller)}

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
    drives: dict[str, Drive] = msgspec.field(default_factory=dict)
    delays: dict[str, Delay] = msgspec.field(default_factory=dict)
    base: Literal["measured", "unmeasured", "estimated"] = "measured"
    sensors: dict[str, Sensor] = msgspec.field(default_factory=dict)
    parameters: dict[str, float] = msgspec.field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def robot(self) -> str:
        """Name of the robot."""
        return self.spec.robot

    @property
    def of_robot(self) -> bool:
        """Whether the data come from the robot itself rather than its declared simulator."""
        return self.source == "log" and not self.notes.get(SIMULATED)

    @property
    def shift(self) -> float:
        """Delay of the controls that the stored data no longer have, because they were shifted by it [s].

        Stores of older versions keep it in their notes: their import shifted by the delay that it measured.
        """
        if CONTROL in self.delays:
            return self.delays[CONTROL].applied
        return float((self.notes.get("alignment") or {}).get("chosen", 0.0))

    @property
    def differentiated(self) -> bool:
        """Whether all velocities of a log, those of its base among them, are differences of its positions."""
        return (self.notes.get("column_map") or {}).get("qd") == "differentiate"

    @property
    def base_com(self) -> Vector3:
        """Point of a floating base, in its frame, that its linear velocity is that of [m]; the origin if unknown."""
        if self.contact_points is not None:
            return self.contact_points.base_com
        if self.fingerprint is None or not self.spec.floating:
            return (0.0, 0.0, 0.0)
        x, y, z = self.fingerprint.bodies[0].com
        return (x, y, z)

    @property
    def findings(self) -> list[Finding]:
        """What the import found to doubt in a log, worst first."""
        return from_dict(self.notes.get(FINDINGS, []), list[Finding], "findings of the log")

    @property
    def absent(self) -> np.ndarray:
        """Which of the columns of q and qd, side by side, hold no numbers: those of an unmeasured base, bool."""
        spec = self.spec
        absent = np.zeros(spec.nq + spec.nv, bool)
        if self.base == "unmeasured":
            absent[: spec.joints[0].nq] = absent[spec.nq : spec.nq + spec.joints[0].nv] = True
        return absent

    def with_findings(self, findings: Sequence[Finding]) -> "StoreHeader":
        """Return the header of a log with these findings, of which the ones that are ok are left out."""
        return msgspec.structs.replace(self, notes={**self.notes, FINDINGS: to_dict(doubts(findings))})

    def differences(self, other: "StoreHeader") -> list[str]:
        """List in words how `other` differs from this header, apart from `sources`."""
        mine, theirs = (_flatten({**_plain(header), "sources": None}) for header in (self, other))
        pairs = {key: (theirs.get(key, "absent"), mine.get(key, "absent")) for key in mine | theirs}
        return [f"{key} is {new} instead of {old}" for key, (new, old) in pairs.items() if new != old]


def of_one_log(groups: Iterable[str]) -> bool:
    """Return whether all groups are parts of one run, between which a robot rests but stays the same."""
    return all(SITTING in name for name in groups)


def episode_table(lengths: ArrayLike, **fields: Any) -> np.ndarray:
    """Return EPISODE records, shape [E], of consecutively stored episodes of `lengths` transitions.

    `fields` are the other columns, one value for all or one each; world, run and group default to -1.
    """
    lengths = np.asarray(lengths, np.int64)
    table = np.zeros(len(lengths), EPISODE)
    values = {"world": -1, "run": -1, "group": -1, "length": lengths, "start": np.cumsum(lengths + 1) - lengths - 1}
    for name, value in {**values, **fields}.items():
        table[name] = value
    return table


def write_header(file: h5py.File, header: StoreHeader) -> None:
    """Write the header into an open file as JSON, and its main fields as readable attributes.

    All strings have fixed lengths: HDF5 keeps variable-length strings in its global heap, and reading a damaged heap
    can hang.
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
        "parameter_names": list(header.parameters),
        "seed": "none" if header.seed is None else header.seed,
        "versions": json.dumps(header.versions),
    }
    for name, value in attributes.items():
        file.attrs[name] = _fixed_length(value)


def _fixed_length(value: Any) -> Any:
    if isinstance(value, str):
        return np.bytes_(value.encode())
    if isinstance(value, list):
        return np.array([item.encode() for item in value], dtype="S") if value else h5py.Empty("S1")
    return value


def read_header(file: h5py.File, where: str) -> StoreHeader:
    """Read the header of an open file; raise an InputError if it is not a store or has another schema version."""
    if _text(file.attrs.get("format")) != FORMAT:
        raise InputError(
            f"{where}: an HDF5 file, but no trajectory store; expected one written by `neurodyn generate` or "
            "`neurodyn import`"
        )
    schema = file.attrs.get("schema_version")
    if schema != SCHEMA_VERSION:
        raise InputError(f"{where}: has schema version {schema}; this version of neurodyn reads {SCHEMA_VERSION}")
    stored = dataset(file, "header")
    text, wanted = bytes(stored[()]), stored.attrs.get(_CRC)  # stores written by other tools have none
    if wanted is not None and zlib.crc32(text) != int(wanted):
        raise InputError(f"{where}: damaged store: its header changed; copy it again from where it is whole")
    return from_dict(json.loads(text.decode()), StoreHeader, f"{where} (header)")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset of an open file, or raise an InputError if it is missing or stored elsewhere."""
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


CHECKSUMS = "checksums"
"""Dataset with one checksum record per piece of rows."""

PIECE_ROWS = 4096
"""Rows per piece; fewer if fewer were committed at once."""

_PLACE = (("batch", "<i8"), ("rows_end", "<i8"), ("episodes_end", "<i8"))


def record_type(arrays: Sequence[str]) -> np.dtype:
    """Return the dtype of a checksum record: batch, end row and end episode, and one CRC per array."""
    return np.dtype([*_PLACE, *((name, "<u4") for name in arrays)])


def crc(values: np.ndarray) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data) if values.size else 0


def pieces(count: int) -> list[int]:
    """Return the end of each piece of `count` new rows; one piece if there are none."""
    return [*range(PIECE_ROWS, count, PIECE_ROWS), count]


def records(
    kind: np.dtype, batch: int, rows: int, episodes: int, arrays: Mapping[str, np.ndarray], per_episode: frozenset[str]
) -> np.ndarray:
    """Return checksum records of dtype `kind` for a batch appended after `rows` rows and `episodes` episodes.

    `arrays` holds the new values of each array. Arrays in `per_episode` have one entry per episode instead of per row;
    their CRC is in the last piece.
    """
    sizes = {name: len(values) for name, values in arrays.items()}
    ends = pieces(max((size for name, size in sizes.items() if name not in per_episode), default=0))
    table = np.zeros(len(ends), kind)
    table["batch"], table["rows_end"], table["episodes_end"] = batch, rows + np.array(ends), episodes
    table["episodes_end"][-1] += max((size for name, size in sizes.items() if name in per_episode), default=0)
    for name in arrays.keys() & set(kind.names or ()):
        if name in per_episode:
            table[name][-1] = crc(arrays[name])
        else:
            table[name] = [crc(arrays[name][begin:end]) for begin, end in pairwise([0, *ends])]
    return table


class Checksums:
    """Checksum records of a store's committed data; `read` marks pieces whose rows were read in full and verified."""

    def __init__(self, where: str, table: np.ndarray) -> None:
        self.where, self.table, self.read = where, table, np.zeros(len(table), bool)

    @classmethod
    def of(cls, file: h5py.File, where: str) -> Self | None:
        """Return the records of an open store, or None; an InputError if they disagree with the commit counter."""
        if CHECKSUMS not in file:
            return None
        batches, rows, episodes = (int(n) for n in dataset(file, "committed")[()])
        table = dataset(file, CHECKSUMS)[()]
        last = np.flatnonzero(table["batch"] == batches - 1) if batches else np.empty(0, int)
        count = int(last[-1]) + 1 if len(last) else 0
        end = (int(table["rows_end"][count - 1]), int(table["episodes_end"][count - 1])) if count else (0, 0)
        if (batches and not count) or end != (rows, episodes) or (np.diff(table["rows_end"][:count]) < 0).any():
            raise InputError(f"{where}: damaged store: its counters and checksums disagree; {_MEND}")
        return cls(where, table[:count])

    @property
    def ends(self) -> np.ndarray:
        """End row of each piece."""
        return self.table["rows_end"]

    def around(self, begin: int, end: int) -> tuple[int, int]:
        """Extend a range of rows to whole pieces; return its first row and its end."""
        first, last = self._pieces(begin, end)
        return (int(self.ends[first - 1]) if first else 0), (int(self.ends[last]) if last < len(self.ends) else end)

    def _pieces(self, begin: int, end: int) -> tuple[int, int]:
        """Return the first and the last piece of a range of rows."""
        return int(np.searchsorted(self.ends, begin, side="right")), int(np.searchsorted(self.ends, end, side="left"))

    def known(self, begin: int, end: int) -> bool:
        """Return whether all rows from `begin` to `end` have been verified."""
        first, last = self._pieces(begin, end)
        return bool(self.read[first : last + 1].all())

    def verify(self, name: str, begin: int, values: np.ndarray) -> None:
        """Verify whole pieces of rows, starting at piece `begin`; an InputError names rows that changed."""
        first_piece, last_piece = self._pieces(begin, begin + len(values))
        edges = [begin, *self.ends[first_piece : last_piece + 1].tolist()]
        for piece, (first, last) in enumerate(pairwise(edges), first_piece):
            if crc(values[first - begin : last - begin]) != self.table[name][piece]:
                raise InputError(f"{self.where}: damaged store: {name} of rows {first} to {last - 1} changed; {_MEND}")

    def note(self, begin: int, end: int) -> None:
        """Mark the pieces from row `begin` to row `end` as verified in all arrays."""
        first, last = self._pieces(begin, end)
        self.read[first : last + 1] = True

    def verify_episodes(self, name: str, values: np.ndarray) -> None:
        """Verify all of a per-episode array; errors: see `verify`."""
        begin = 0
        for piece, end in enumerate(self.table["episodes_end"].tolist()):
            if end > begin and crc(values[begin:end]) != self.table[name][piece]:
                raise InputError(f"{self.where}: damaged store: {name} {begin} to {end - 1} changed; {_MEND}")
            begin = max(begin, end)


_MEND = "copy it again from where it is whole, or write it again"
