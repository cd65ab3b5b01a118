# SPDX-License-Identifier: Apache-2.0
"""Logs of messages by topic, each topic with a type and a clock: the common part of ROS bags and MCAP files."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.readers.ros import Decoded, Decoder, message_definitions
from neurodyn.data.readers.source import MOST_VALUES, ColumnSeries, LogPart, RunRows, Source, Topic

_SAMPLE = 64
"""Messages per topic sampled to list its columns."""

_BATCH = 8192
"""Messages per topic decoded at once."""

_NOT_LISTED = ("covariance",)


@dataclass(frozen=True)
class MessageChannel:
    """One topic of a log, with its message type ("package/msg/Type") and the definition of that type.

    Only the encodings "cdr" and "ros1" and the definition languages "ros2msg" and "ros1msg" can be read. Fields are
    empty if the file does not say.
    """

    topic: str
    kind: str
    encoding: str
    definition: str
    language: str


Message = tuple[str, int, bytes]
"""Topic, log time [ns] and content of a message."""


class MessageSource(Source):
    """A log of messages; `clock` selects times from message headers, where present, or from the log."""

    clock: Literal["header", "log"] = "header"

    @abstractmethod
    def channels(self) -> dict[str, MessageChannel]:
        """Return the channels by topic."""

    @abstractmethod
    def messages(self, topics: frozenset[str]) -> Iterator[Message]:
        """Yield the messages of selected topics in file order."""

    def topics(self) -> list[Topic]:
        """Return the topics, with the columns of their first messages."""
        channels = self.channels()
        decoders, troubles = self._decoders(channels.values())
        samples: dict[str, list[bytes]] = {topic: [] for topic in decoders}
        if samples:
            for topic, _, content in self.messages(frozenset(samples)):
                if len(samples[topic]) < _SAMPLE:
                    samples[topic].append(content)
                if len(samples[topic]) >= _SAMPLE and all(len(s) >= _SAMPLE for s in samples.values()):
                    break
        streams = []
        for topic, channel in channels.items():
            columns: dict[str, None] = {}
            stamped = False
            try:
                parts = decoders[topic].decode(samples[topic]) if topic in decoders else []
            except InputError as error:
                parts, troubles[topic] = [], str(error)
            for part in parts:
                columns |= dict.fromkeys(part.columns)
                stamped = stamped or (part.stamp is not None and bool(part.stamp.any()))
            names = [f"{topic}.{name}" for name in columns if not any(word in name for word in _NOT_LISTED)]
            clock = "header" if stamped and self.clock == "header" else "log"
            streams.append(Topic(topic, channel.kind, tuple(names), clock, trouble=troubles.get(topic, "")))
        return streams

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the single run of a log in parts of bounded size; columns of a part may be empty."""
        channels = self.channels()
        places = {name: self._place(name, channels) for name in names}
        topics = dict.fromkeys(topic for topic, _ in places.values())
        decoders, troubles = self._decoders(channels[topic] for topic in topics)
        if troubles:
            raise InputError(f"{self.path}: topic {next(iter(troubles))!r} {next(iter(troubles.values()))}")
        wanted = {topic: frozenset(c for t, c in places.values() if t == topic) for topic in topics}
        streams = {topic: _Stream(decoders[topic], wanted[topic], self.clock) for topic in topics}
        limit, count, origin, first = MOST_VALUES // (len(names) + 2 * len(topics)), 0, None, True
        for topic, stamp, content in self.messages(frozenset(topics)):
            streams[topic].add(stamp, content, self._where(topic))
            count += 1
            if count >= limit:
                origin = self._origin(streams, places) if origin is None else origin
                yield self._part(streams, places, origin, partial=True)
                count, first = 0, False
        if count or first:
            origin = self._origin(streams, places) if origin is None else origin
            yield self._part(streams, places, origin, partial=not first)

    def _where(self, topic: str) -> str:
        return f"{self.path}: topic {topic!r}"

    def _origin(self, streams: "dict[str, _Stream]", places: dict[str, tuple[str, str]]) -> int:
        """Return the first time of all streams [ns], or raise an InputError if a topic or column is empty."""
        for stream in streams.values():
            stream.flush()
        for topic, stream in streams.items():
            if not stream.count:
                raise InputError(f"{self._where(topic)} has no message; valid: a topic with messages, or another bag")
            absent = [column for t, column in places.values() if t == topic and column not in stream.seen]
            if absent:
                there = ", ".join(sorted(stream.listed)) or "(no numbers)"
                raise InputError(
                    f"{self._where(topic)} has no {', '.join(map(repr, dict.fromkeys(absent)))}; there: {there}"
                )
        return min(int(stream.first) for stream in streams.values())

    def _part(
        self, streams: "dict[str, _Stream]", places: dict[str, tuple[str, str]], origin: int, *, partial: bool
    ) -> LogPart:
        columns = {topic: stream.take(origin) for topic, stream in streams.items()}
        return LogPart(
            [RunRows(self.path.stem, partial=partial)],
            {name: columns[topic][column] for name, (topic, column) in places.items()},
        )

    def _place(self, name: str, channels: dict[str, MessageChannel]) -> tuple[str, str]:
        """Split a name such as "/topic.field[joint]" into topic and column."""
        for topic in sorted(channels, key=len, reverse=True):
            if name.startswith(f"{topic}."):
                return topic, name[len(topic) + 1 :]
        listed = [f"{topic} ({channel.kind})" for topic, channel in channels.items()]
        raise self.missing([name.partition(".")[0]], listed, "topic")

    def _decoders(self, channels: Iterable[MessageChannel]) -> tuple[dict[str, Decoder], dict[str, str]]:
        """Return a decoder for each readable topic, and for each other topic why it cannot be read."""
        decoders: dict[str, Decoder] = {}
        troubles: dict[str, str] = {}
        for channel in channels:
            try:
                decoders[channel.topic] = _decoder(channel)
            except InputError as error:
                troubles[channel.topic] = str(error)
        return decoders, troubles


def _decoder(channel: MessageChannel) -> Decoder:
    if channel.encoding not in {"cdr", "ros1"}:
        raise InputError(f"is encoded as {channel.encoding or 'nothing'!r}; valid: cdr (ROS 2) and ros1")
    if not channel.kind:
        raise InputError("has no schema, so that its type is unknown; record it with one")
    text = channel.definition if channel.language in {"ros2msg", "ros1msg"} else ""
    ros1 = channel.encoding == "ros1"
    return Decoder(channel.kind, message_definitions(channel.kind, text, ros1=ros1), ros1=ros1)


class _Stream:
    """Messages of one topic, buffered until they are returned as columns.

    `count` is the number of messages so far, `first` the time of the first one [ns]. `seen` holds the selected columns
    found in any message, `listed` all columns of the first messages.
    """

    def __init__(self, decoder: Decoder, wanted: frozenset[str], clock: Literal["header", "log"]) -> None:
        self.count, self.first = 0, 0
        self.seen: set[str] = set()
        self.listed: set[str] = set()
        self._decoder, self._wanted, self._clock = decoder, wanted, clock
        self._where = ""
        self._raw: list[bytes] = []
        self._times: list[int] = []
        self._done: list[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]] = []

    def add(self, time: int, content: bytes, where: str) -> None:
        self._where = where
        self._raw.append(content)
        self._times.append(time)
        if len(self._raw) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Decode the messages added since the last call."""
        if not self._raw:
            return
        times = np.asarray(self._times, np.int64)
        try:
            if not self.listed:
                parts = self._decoder.decode(self._raw[:_SAMPLE])
                self.listed = {name for part in parts for name in part.columns}
            parts = self._decoder.decode(self._raw, self._wanted)
        except InputError as error:
            raise InputError(
                f"{self._where}: {error}; the bag is damaged, or recorded with another definition"
            ) from None
        stamps = times.copy()
        if self._clock == "header" and any(part.stamp is not None and part.stamp.any() for part in parts):
            for part in parts:
                stamps[part.index] = times[part.index] if part.stamp is None else part.stamp
        if not self.count:
            self.first = int(stamps[0])
        for index, values in _merge(parts):
            self.seen |= values.keys()
            self._done.append((self.count + index, stamps[index], values))
        self.count += len(times)
        self._raw, self._times = [], []

    def take(self, origin: int) -> dict[str, ColumnSeries]:
        """Return and clear the columns so far, with times since `origin` [ns]."""
        self.flush()
        together: dict[tuple[int, ...], list[str]] = {}
        for name in self._wanted:
            blocks = tuple(i for i, (_, _, values) in enumerate(self._done) if name in values)
            together.setdefault(blocks, []).append(name)
        series: dict[str, ColumnSeries] = {}
        for blocks, names in together.items():
            none = [np.zeros(0, np.int64)]
            index = np.concatenate([self._done[i][0] for i in blocks] or none)
            stamps = np.concatenate([self._done[i][1] for i in blocks] or none)
            order = slice(None) if (np.diff(index) > 0).all() else np.argsort(index)
            time = (stamps[order] - origin) / 1e9
            for name in names:
                value = np.concatenate([self._done[i][2][name] for i in blocks] or [np.zeros(0)])
                series[name] = ColumnSeries(time, value[order])
        self._done = []
        return series


def _merge(parts: Sequence[Decoded]) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Merge messages with the same columns; yield their sorted indices and their values."""
    by_names: dict[frozenset[str], list[Decoded]] = {}
    for part in parts:
        if part.columns:
            by_names.setdefault(frozenset(part.columns), []).append(part)
    for names, same in by_names.items():
        index = np.concatenate([part.index for part in same])
        order = np.argsort(index, kind="stable")
        values = {name: np.concatenate([part.columns[name] for part in same])[order] for name in names}
        yield index[order], values
