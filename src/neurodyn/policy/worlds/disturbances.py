# SPDX-License-Identifier: Apache-2.0
"""Disturbances between policy and robot: errors of readings and actions, delays, pushes, and observation history.

They are drawn with the syntax of randomised quantities (`core.description.randomisation`), once per episode or in every
step. Tasks declare some of their own, which the user's override.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.randomisation import Each, RandomisedQuantity, randomised_quantities
from neurodyn.core.errors import InputError
from neurodyn.dynamics.control import require_pushable
from neurodyn.dynamics.interface import Dynamics
from neurodyn.sim.draws import numbers_of
from neurodyn.tasks import Task
from neurodyn.tasks.views import SENSORS

_OBSERVATION, _ACTION, _PUSH, _DELAY, _RATE = "observation.", "action.", "push.", "delay.", "rate."
_SPEED, _INTERVAL = "push.velocity", "push.interval"
_LATE, _SEEN_LATE = "delay.action", "delay.observation"
_AXES = tuple(f"{_SPEED}.{axis}" for axis in "xyz")
_BESIDE = {"add": "", "scale": " (factor)", "set": " (value)"}
_SLOWEST = 1.0
"""Least rate of a sensor [Hz]."""
_SECONDS = (1.0, 3.0)
"""Default range of the time between pushes [s], as in mjlab."""


def is_disturbance(text: str) -> bool:
    """Return whether a text names a disturbance instead of a quantity of the robot."""
    return text.startswith((_OBSERVATION, _ACTION, _PUSH, _DELAY, _RATE, "dr.push", "dr.encoder"))


def disturbances_of(texts: Sequence[str], task: Task) -> tuple[RandomisedQuantity, ...]:
    """Return the requested disturbances.

    Quantities are "observation.COLUMN" and "action.NAME", to which a draw is added or by which they are multiplied;
    "delay.observation" and "delay.action" [s]; "delay.SENSOR" [s] and "rate.SENSOR" [Hz] of the sensors that a policy
    sees (`tasks.sensing`), such as the gyroscope; "push.velocity" [m/s], in a random horizontal direction, and
    "push.velocity.x", ".y", ".z" in base axes, every "push.interval" [s]. Pushes are drawn anew each time, the others
    once per episode, unless a text says otherwise.

    Raises:
        InputError: A text is malformed, matches nothing, or is not possible.
    """
    changing = (*(f"{_OBSERVATION}{name}" for name in task.observations), *(f"{_ACTION}{x}" for x in task.actions))
    sensed = (term for term in task.readings if task.observes == SENSORS or term.delay or term.rate)
    sensors = dict.fromkeys(term.sensor for term in sensed if term.sensor)
    timing = [f"{what}{name}" for what in (_DELAY, _RATE) for name in sensors]
    others = ("delay.observation", "delay.action", *timing, _SPEED, *_AXES, _INTERVAL)
    nominal = {**dict.fromkeys(changing, 1.0), **dict.fromkeys(others, 0.0)}
    least = {name: 0.0 for name in others if name.startswith(_DELAY)} | {_INTERVAL: task.declaration().dt}
    least |= {name: _SLOWEST for name in timing if name.startswith(_RATE)}
    quantities = randomised_quantities(texts, nominal, bounds=least, stepwise=True)
    for quantity in quantities:
        if quantity.one:
            raise InputError(f"randomise: {quantity.names[0]} with :one; valid: each of them (without), or &")
        kinds = {name.partition(".")[0] for name in quantity.names}
        if len(kinds) > 1:
            raise InputError(f"randomise: {' & '.join(sorted(kinds))} share a draw; valid: quantities of one kind")
    return tuple(_with_default(one) for one in quantities)


def _with_default(quantity: RandomisedQuantity) -> RandomisedQuantity:
    often = "step" if quantity.names[0].startswith(_PUSH) else "episode"
    return quantity if quantity.each is not None else msgspec.structs.replace(quantity, each=often)


@dataclass(frozen=True)
class DisturbedState:
    """State of the disturbances in each world.

    Attributes:
        readings: Last readings of observations, newest first, shape [worlds, frames, observations].
        seen: Current observations of the policy: its history, newest first, shape [worlds, history * columns].
        actions: Last sent actions, newest first, shape [worlds, frames, actions].
        until: Time until the next push [s], shape [worlds].
        clock: Time by the sensors' clocks, which start anywhere [s], shape [worlds].
    """

    readings: Tensor
    seen: Tensor
    actions: Tensor
    until: Tensor
    clock: Tensor

    def where(self, mask: Tensor, other: "DisturbedState") -> "DisturbedState":
        """Return this state in the worlds of a mask, shape [worlds], and another one elsewhere."""
        pairs = ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return DisturbedState(
            *(torch.where(mask.view(-1, *[1] * (own.dim() - 1)), own, others) for own, others in pairs)
        )


class _Errors:
    """Errors of the columns of an observation, or of an action."""

    def __init__(self, draws: Sequence[RandomisedQuantity], kind: str, columns: Sequence[str], episode: Sequence[str],
                 device: torch.device) -> None:  # fmt: skip
        """Prepare for columns of one kind; `episode` holds the names of the values drawn once per episode."""
        of_kind = [one for one in draws if one.names[0].startswith(kind)]
        self._stepwise = [one for one in of_kind if one.each == "step"]
        places = {f"{kind}{name}": place for place, name in enumerate(columns)}
        self.of_episode, self.of_step = [], []
        for change in ("set", "scale", "add"):  # order of application
            given = {name: episode.index(_value_name(name, one)) for one in of_kind for name in one.names
                     if one.each == "episode" and one.change == change}  # fmt: skip
            drawn = {name: i for i, one in enumerate(self._stepwise) for name in one.names if one.change == change}
            for ways, sources, width in ((self.of_episode, given, len(episode)),
                                          (self.of_step, drawn, len(self._stepwise))):  # fmt: skip
                if sources:
                    index = torch.full((len(columns),), width)
                    for name, source in sources.items():
                        index[places[name]] = source
                    ways.append((change, index.to(device)))

    def __bool__(self) -> bool:
        return bool(self.of_episode or self.of_step)

    def add_to(self, values: Tensor, numbers: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return values with their errors, shape [worlds, columns]."""
        if self.of_episode and numbers is not None:
            values = _apply(self.of_episode, values, numbers.to(values.dtype))
        if self.of_step:
            shape = (len(values), len(self._stepwise))
            drawn = numbers_of(self._stepwise, torch.rand(shape, generator=generator, device=values.device))
            values = _apply(self.of_step, values, drawn.to(values.dtype))
        return values


def _apply(ways: Sequence[tuple[str, Tensor]], values: Tensor, numbers: Tensor) -> Tensor:
    """Return values, each changed by its number, if it has one: index len(numbers) stands for none."""
    for change, index in ways:
        neutral = numbers.new_full((len(numbers), 1), 1.0 if change == "scale" else 0.0)
        change_by = torch.cat([numbers, neutral], 1)[:, index]
        if change == "set":
            values = torch.where(index < numbers.shape[1], change_by, values)
        else:
            values = values * change_by if change == "scale" else values + change_by
    return values


def _value_name(name: str, quantity: RandomisedQuantity) -> str:
    """Return the name of a per-episode value: one quantity may have both an offset and a factor."""
    return name + (_BESIDE[quantity.change] if name.startswith((_OBSERVATION, _ACTION)) else "")


class Disturbances:
    """Disturbances of a batch of worlds.

    Attributes:
        draws: All of them.
        names: Values drawn once per episode (`EpisodeDraws`).
        pushes: Whether the base is pushed.
        history: Frames in the policy's observation.
        with_actions: Whether each frame is followed by the policy's last action.
    """

    def __init__(
        self,
        draws: Sequence[RandomisedQuantity],
        task: Task,
        dynamics: Dynamics,
        *,
        noisy: bool = False,
        history: int = 1,
        with_actions: bool = False,
    ) -> None:
        """Prepare the disturbances of a task, and others that override them.

        Args:
            draws: Disturbances in addition to the task's own (`disturbances_of`).
            task: The task.
            dynamics: The dynamics it acts in.
            noisy: Whether readings have the noise that the task declares for training.
            history: Frames in the policy's observation, newest first.
            with_actions: Whether each frame is followed by the policy's last action.

        Raises:
            InputError: The robot cannot be pushed.
        """
        self.history, self.with_actions = history, with_actions
        self._dt, device = dynamics.spec.dt, torch.device(dynamics.device)
        self.draws = draws = (*draws, *_own(task, draws, noisy=noisy))
        self.names = EpisodeDraws(draws).names
        self._columns = {name: number for number, name in enumerate(self.names)}
        self._readings = _Errors(draws, _OBSERVATION, task.observations, self.names, device)
        self._actions = _Errors(draws, _ACTION, task.actions, self.names, device)
        self._single = {name: one for one in draws for name in one.names if name.startswith((_PUSH, _DELAY, _RATE))}
        self._timed = self._timings(task, device)
        ages = [self._single[name].least for names in self._timed for name in names if name.startswith(_RATE)]
        age = max((1.0 / rate for rate in ages), default=0.0)
        late = max((self._single[name].greatest for name in self._delays), default=0.0)
        self._depth = {
            "observation": 1 + math.ceil((late + age) / self._dt - 1e-6) if self._delays or ages else 0,
            "action": 1 + math.ceil(self._single[_LATE].greatest / self._dt - 1e-6) if _LATE in self._single else 0,
        }
        self.pushes = any(name != _INTERVAL for name in self._single if name.startswith(_PUSH))
        if self.pushes:
            require_pushable(dynamics.spec)

    def __bool__(self) -> bool:
        """Return whether there are disturbances or an observation history."""
        return bool(self.draws) or self.history > 1 or self.with_actions

    def _timings(self, task: Task, device: torch.device) -> dict[tuple[str, ...], Tensor]:
        """Return the columns of each sensor that is late or slow, shape [observations], by the names of its timing."""
        sensors = [term.sensor for term in task.readings for _ in term.names]
        timed = {name: [f"{what}{name}" for what in (_DELAY, _RATE)] for name in dict.fromkeys(sensors) if name}
        return {
            tuple(known): torch.tensor([one == name for one in sensors], device=device, dtype=torch.float32)
            for name, names in timed.items() if (known := [one for one in names if one in self._single])
        }  # fmt: skip

    @property
    def _delays(self) -> list[str]:
        return [name for name in self._single if name.startswith(_DELAY) and name != _LATE]

    def begin(
        self, reading: Tensor, action: Tensor, numbers: Tensor | None, generator: torch.Generator
    ) -> DisturbedState:
        """Return the initial state, from the first observation and a zero action; arguments: see `see`."""
        every_world = torch.ones(len(reading), dtype=torch.bool, device=reading.device)
        empty = DisturbedState(
            reading[:, None].repeat(1, self._depth["observation"], 1),
            self._with_action(reading, action).repeat(1, self.history),
            action[:, None].repeat(1, self._depth["action"], 1),
            torch.zeros_like(reading[:, 0]),
            torch.zeros_like(reading[:, 0]),
        )
        return self.see(
            self.restart(empty, every_world, numbers, generator), reading, action, numbers, generator, every_world
        )

    def act(
        self, before: DisturbedState, action: Tensor, numbers: Tensor | None, generator: torch.Generator
    ) -> tuple[DisturbedState, Tensor]:
        """Return the new state and the action that reaches the robot, shape [worlds, actions]."""
        sent = self._actions.add_to(action, numbers, generator) if self._actions else action
        if not self._depth["action"]:
            return before, sent
        sent_before = torch.cat([sent[:, None], before.actions[:, :-1]], 1)
        late = self._value(_LATE, len(sent), numbers, generator)[:, None]
        return replace(before, actions=sent_before), self._delay(sent_before, late)

    def see(
        self,
        before: DisturbedState,
        reading: Tensor,
        action: Tensor,
        numbers: Tensor | None,
        generator: torch.Generator,
        restarted: Tensor | None = None,
    ) -> DisturbedState:
        """Return the state after an observation.

        Args:
            before: The state before.
            reading: Observations of the task, shape [worlds, observations].
            action: The policy's last actions, shape [worlds, actions].
            numbers: Values drawn for the episodes, shape [worlds, names].
            generator: Random numbers.
            restarted: Worlds whose episode begins now, shape [worlds], bool.
        """
        seen = self._readings.add_to(reading, numbers, generator) if self._readings else reading
        readings, clock = before.readings, before.clock
        if self._depth["observation"]:
            clock = clock + self._dt
            readings = torch.cat([seen[:, None], readings[:, :-1]], 1)
            if restarted is not None:
                readings = torch.where(restarted[:, None, None], seen[:, None], readings)
            seen = self._delay(readings, self._lateness(seen, clock, numbers, generator))
        seen = shown = self._with_action(seen, action)
        if self.history > 1:
            shown = torch.cat([seen, before.seen[:, : -seen.shape[1]]], 1)
            if restarted is not None:
                shown = torch.where(restarted[:, None], seen.repeat(1, self.history), shown)
        return replace(before, readings=readings, seen=shown, clock=clock)

    def restart(
        self, before: DisturbedState, restarted: Tensor, numbers: Tensor | None, generator: torch.Generator
    ) -> DisturbedState:
        """Return the state after the start of episodes: no actions, and a new time until a push."""
        until = before.until
        if self.pushes:
            drawn = self._value(_INTERVAL, len(until), numbers, generator).to(until.dtype)
            until = torch.where(restarted, drawn, until)
        clock = before.clock
        if any(name.startswith(_RATE) for names in self._timed for name in names):
            drawn = torch.rand(len(clock), generator=generator, device=clock.device).to(clock.dtype) / _SLOWEST
            clock = torch.where(restarted, drawn, clock)
        actions = before.actions.masked_fill(restarted[:, None, None], 0.0)
        return replace(before, actions=actions, until=until, clock=clock)

    def push(
        self, before: DisturbedState, numbers: Tensor | None, generator: torch.Generator
    ) -> tuple[DisturbedState, Tensor]:
        """Return the new state and the base's velocity jump [m/s], base axes, shape [worlds, 3]; 0 without a push."""
        until = before.until - self._dt
        now = until <= 0.5 * self._dt
        given = {name: value.to(until.dtype) for name, value in self._values(_PUSH, len(until), numbers, generator)}
        until = torch.where(now, given[_INTERVAL], until)
        none = until.new_zeros(len(until))
        parts = [given.get(name, none) for name in _AXES]
        if _SPEED in given:
            heading = 2.0 * math.pi * torch.rand(len(until), generator=generator, device=until.device).to(until.dtype)
            parts = [parts[0] + given[_SPEED] * heading.cos(), parts[1] + given[_SPEED] * heading.sin(), parts[2]]
        return replace(before, until=until), torch.stack(parts, 1).masked_fill(~now[:, None], 0.0)

    def _with_action(self, reading: Tensor, action: Tensor) -> Tensor:
        return torch.cat([reading, action], 1) if self.with_actions else reading

    def _values(
        self, kind: str, worlds: int, numbers: Tensor | None, generator: torch.Generator
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield names of one kind and their current values, shape [worlds]."""
        names = [name for name in self._single if name.startswith(kind)]
        drawn = [name for name in names if numbers is None or name not in self._columns]
        if drawn:
            uniform = torch.rand(worlds, len(drawn), generator=generator, device=generator.device)
            yield from zip(drawn, numbers_of([self._single[name] for name in drawn], uniform).unbind(1), strict=True)
        if numbers is not None:
            yield from ((name, numbers[:, self._columns[name]]) for name in names if name not in drawn)

    def _value(self, name: str, worlds: int, numbers: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return the current values of one of them, shape [worlds]."""
        return next(value for known, value in self._values(name, worlds, numbers, generator) if known == name)

    def _lateness(self, seen: Tensor, clock: Tensor, numbers: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return by how much each column is late [s], shape [worlds, 1 or observations].

        A sensor shows its last reading, taken at its own times, its delay ago.
        """
        worlds, late = len(seen), seen.new_zeros(len(seen), 1)
        if _SEEN_LATE in self._single:
            late = self._value(_SEEN_LATE, worlds, numbers, generator).to(seen.dtype)[:, None]
        for names, columns in self._timed.items():
            by = torch.zeros_like(clock)
            for name in names:
                value = self._value(name, worlds, numbers, generator).to(clock.dtype)
                by = by + (torch.remainder(clock, 1.0 / value) if name.startswith(_RATE) else value)
            late = late + by[:, None] * columns
        return late

    def _delay(self, kept: Tensor, seconds: Tensor) -> Tensor:
        """Return the delayed values, linear between frames; for held commands, this is their mean over the frame.

        `kept` holds the last values, newest first, shape [worlds, frames, columns]; `seconds` has shape [worlds, 1 or
        columns].
        """
        delay = (seconds.to(kept.dtype) / self._dt).clamp(0.0, kept.shape[1] - 1.0)
        whole = (delay + 1e-4).floor()
        share = (delay - whole).clamp_min(0.0)
        index = torch.stack([whole, (whole + 1.0).clamp_max(kept.shape[1] - 1.0)], 1).long()
        newer, older = kept.gather(1, index.expand(-1, -1, kept.shape[2])).unbind(1)
        return torch.lerp(newer, older, share)


def _own(task: Task, given: Sequence[RandomisedQuantity], *, noisy: bool) -> tuple[RandomisedQuantity, ...]:
    """Return a task's own disturbances, except overridden ones."""
    draws = list(disturbances_of(task.disturbances, task))
    if noisy:
        draws += _of_readings(task)
    named = {(name, *_way(name, one)) for one in given for name in one.names}
    if any(name.startswith(_SPEED) for name, *_ in named):
        draws = [one for one in draws if not one.names[0].startswith(_SPEED)]
    intervals = {name for name, *_ in named} | {name for one in draws for name in one.names}
    if _INTERVAL not in intervals and any(name.startswith(_SPEED) for name in intervals):
        draws.append(RandomisedQuantity(names=(_INTERVAL,), lower=_SECONDS[0], upper=_SECONDS[1], each="step"))
    return tuple(one for one in draws if not any((name, *_way(name, one)) in named for name in one.names))


def _way(name: str, draw: RandomisedQuantity) -> tuple[str | None, ...]:
    """Return what another draw of a quantity must share to replace this one: nothing more for delays and rates."""
    return () if name.startswith((_DELAY, _RATE)) else (draw.change, draw.each)


def _of_readings(task: Task) -> Iterator[RandomisedQuantity]:
    """Yield noise and offsets of the task's observations, and delays and rates of what reads them."""
    offsets = tuple(term.bias for term in task.readings for _ in term.names)
    parts: tuple[tuple[tuple[float, ...], Each], ...] = ((task.noise, "step"), (offsets, "episode"))
    for halves, each in parts:
        for name, half in zip(task.observations, halves or (0.0,) * len(task.observations), strict=True):
            if half:
                names = (f"{_OBSERVATION}{name}",)
                yield RandomisedQuantity(names=names, change="add", lower=-half, upper=half, each=each)
    delays = {term.sensor: term.delay for term in task.readings if term.sensor and term.delay}
    rates = {term.sensor: term.rate for term in task.readings if term.sensor and term.rate}
    for kind, values in ((_DELAY, delays), (_RATE, rates)):
        for sensor, value in values.items():
            yield RandomisedQuantity(names=(f"{kind}{sensor}",), lower=value, upper=value, each="step")


@dataclass(frozen=True)
class EpisodeDraws:
    """Per-episode draws of disturbances, in addition to the robot's (`policy.worlds.randomisation.QuantityDraws`).

    Attributes:
        draws: Disturbances; those drawn in every step are left out.
    """

    draws: tuple[RandomisedQuantity, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values; offsets, factors and values of the same column have different names."""
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(_value_name(name, one) for one in self._drawn_once for name in one.names)

    @cached_property
    def _drawn_once(self) -> tuple[RandomisedQuantity, ...]:
        return tuple(one for one in self.draws if one.each == "episode")

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return drawn values, shape [worlds, names]."""
        drawn_once = self._drawn_once
        numbers = numbers_of(
            drawn_once, torch.rand(worlds, len(drawn_once), generator=generator, device=generator.device)
        )
        if len(self.names) == len(drawn_once):
            return numbers
        return torch.cat(
            [x.expand(-1, len(one.names)) for x, one in zip(numbers.split(1, 1), drawn_once, strict=True)], 1
        )
