# SPDX-License-Identifier: Apache-2.0
"""Batches of worlds: states, controls, environments, histories, predictions and roll-outs.

`Batched` checks their shapes at construction, and lets them be indexed, printed and plotted.
"""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neurodyn.data.store import Store
    from neurodyn.data.windows import Windows


def new_figure(**options: Any) -> "Figure":
    """Return an empty figure that notebooks show; `options`: see `matplotlib.figure.Figure`."""
    return _kind()(layout="constrained", **options)


@cache
def _kind() -> "type[Figure]":
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=90)
            return buffer.getvalue()

    return NotebookFigure


Axis = tuple[str, int]
"""Name of an axis, and the offset that is added to its size before comparison."""


class Batched:
    """Base class of frozen dataclasses whose fields are arrays over a batch of worlds, or None."""

    def __post_init__(self) -> None:
        """Convert arrays to tensors; raise an `InputError` for wrong axes, sizes or dtypes, without reading values."""
        fields, fixed = _fields(type(self))
        values, sizes, dtype = self.__dict__, dict(fixed), None
        if "state" in values:
            sizes["worlds"] = values["state"].q.shape[0]
        for name, layouts in fields:
            value = values[name]
            if value is None:
                continue
            if not isinstance(value, Tensor):
                value = values[name] = _tensor(value, self, name)
            if not layouts:
                continue
            shape = value.shape
            axes = layouts.get(len(shape))
            if axes is None:
                raise InputError(_refusal(self, name))
            for size, (axis, offset) in zip(shape, axes, strict=True):
                if sizes.setdefault(axis, size + offset) != size + offset:
                    raise InputError(_refusal(self, name))
            if dtype is None:
                dtype = value.dtype
                if not dtype.is_floating_point:
                    raise InputError(f"{type(self).__name__}.{name} is {dtype}; valid: a floating dtype")
            elif value.dtype is not dtype:
                raise InputError(
                    f"{type(self).__name__}.{name} is {value.dtype}, but what comes before it is {dtype}; valid: one "
                    "dtype for all"
                )

    @classmethod
    def make_unchecked(cls, **values: Any) -> Self:
        """Return a batch without checks, for loops with known shapes."""
        made = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)  # torch.compile of torch 2.11 traces no update of `__dict__`
        return made

    @property
    def worlds(self) -> int:
        """Number of worlds; 1 if the values apply to all worlds."""
        return _worlds(self) or 1

    def rows(self, index: Tensor | slice) -> Self:
        """Return some of the worlds by a slice, indices (int64), or a mask, shape [worlds]."""
        changed = {name: value[index] for name, value in self._over_worlds().items()}
        changed |= {name: value.rows(index) for name, value in self.__dict__.items() if hasattr(value, "rows")}
        return dataclasses.replace(self, **changed)  # type: ignore[type-var]

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenate batches with the same fields; values without a worlds axis are taken from the first."""
        if len(parts) == 1:
            return parts[0]
        changed: dict[str, Any] = {
            name: torch.cat([getattr(p, name) for p in parts]) for name in parts[0]._over_worlds()
        }
        for name, value in parts[0].__dict__.items():
            if isinstance(value, Batched):
                changed[name] = type(value).concatenate([getattr(part, name) for part in parts])
        return dataclasses.replace(parts[0], **changed)  # type: ignore[type-var]

    def to(self, target: torch.device | torch.dtype | str) -> Self:
        """Return the batch with its arrays on another device or of another dtype; see `Environment.to` for grounds."""
        kinds = (Tensor, Batched)
        changed = {name: value.to(target) for name, value in self.__dict__.items() if isinstance(value, kinds)}
        return dataclasses.replace(self, **changed)  # type: ignore[type-var]

    def _over_worlds(self) -> dict[str, Tensor]:
        """Return the arrays whose first axis runs over worlds."""
        worlds, fields = _worlds(self), dict(_fields(type(self))[0])

        def spans(name: str, value: Any) -> bool:
            if not isinstance(value, Tensor) or not value.ndim or value.shape[0] != worlds:
                return False
            # Arrays that broadcast have no named axes.
            return fields[name][value.ndim][0][0] == "worlds" if fields[name] else value.ndim > 1

        return {name: value for name, value in self.__dict__.items() if spans(name, value)}

    def numpy(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, on the host; nested states are flattened."""
        return {name: value.detach().cpu().numpy() for name, value, _ in _arrays(self)}

    def plot(self, spec: StateSpec | None = None, *, worlds: int = 8) -> "Figure":
        """Draw every array: over time if it has frames, else as one point for each world.

        Args:
            spec: Names of the coordinates and dt for the labels; None for indices.
            worlds: Maximum number of worlds to draw.
        """
        arrays = _arrays(self)
        figure = new_figure(figsize=(8.0, 0.8 + 2.2 * len(arrays)))
        if arrays:
            for axes, array in zip(figure.subplots(len(arrays), squeeze=False)[:, 0], arrays, strict=True):
                _draw(axes, *array, spec, worlds)
        return figure

    def __repr__(self) -> str:
        shapes, others = [], []
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor):
                shapes.append(f"{name} {list(value.shape)}")
            elif value is not None:
                others.append(f"{name}={value!r}")
        tensor = next((value for value in self.__dict__.values() if isinstance(value, Tensor)), None)
        where = "" if tensor is None else f"; {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
        return f"{type(self).__name__}({', '.join([*others, *shapes])}{where})"

    def _repr_html_(self) -> str:
        """Return a table of the arrays, for notebooks."""
        heads = "".join(f"<th>{head}</th>" for head in ("", "shape", "dtype", "device", "least", "mean", "greatest"))
        lines = []
        for name, value, _ in _arrays(self):
            cells = [name, list(value.shape), str(value.dtype).removeprefix("torch."), value.device]
            if value.numel():
                cells += [f"{float(x):.4g}" for x in (value.min(), value.mean(), value.max())]
            lines.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
        return f"<b>{escape(type(self).__name__)}</b><table><tr>{heads}</tr>{''.join(lines)}</table>"


@cache
def _fields(kind: type) -> tuple[list[tuple[str, dict[int, tuple[Axis, ...]]]], dict[str, int]]:
    """Return the layouts of each array field by number of axes (empty: any), and the axes of fixed size."""
    fields, fixed = [], {}
    for name, hint in get_type_hints(kind).items():
        texts = [part.dim_str for part in (hint, *get_args(hint)) if hasattr(part, "dim_str")]
        if not texts:
            continue
        layouts = [] if "..." in texts else [tuple(_axis(word) for word in text.split()) for text in texts]
        fixed |= {axis: int(axis) for layout in layouts for axis, _ in layout if axis.isdigit()}
        fields.append((name, {len(layout): layout for layout in layouts}))
    return fields, fixed


def _axis(word: str) -> Axis:
    name, _, less = word.partition("-")
    return name, int(less or 0)


def _tensor(value: Any, owner: Batched, name: str) -> Tensor:
    """Convert a numpy array or number to a tensor, of the default dtype unless it is an array of floats."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fiu":
            return torch.tensor(value, dtype=None if value.dtype.kind == "f" else torch.get_default_dtype())
        kind = f"ndarray of {value.dtype.name}"
    elif isinstance(value, Real):
        return torch.tensor(float(value))
    raise InputError(f"{type(owner).__name__}.{name} is of type {kind}; valid: a numpy array or a torch tensor")


def _refusal(owner: Batched, name: str) -> str:
    """Return the error message for a field of the wrong shape."""
    fields, _ = _fields(type(owner))
    layouts, shape = dict(fields)[name], list(getattr(owner, name).shape)
    words = " or ".join(
        f"[{', '.join(axis + (f' - {less}' if less else '') for axis, less in layout)}]" for layout in layouts.values()
    )
    others = [
        f"{other} {list(value.shape)}" if isinstance(value, Tensor) else f"{other} of {value.worlds} worlds"
        for other, value in owner.__dict__.items()
        if other != name and isinstance(value, Tensor | Batched)
    ]
    beside = f" beside {', '.join(others)}" if others else ""
    hint = "; one world is x[None]" if len(shape) + 1 in layouts and len(shape) not in layouts else ""
    return f"{type(owner).__name__}.{name} has shape {shape}{beside}; valid: {words}{hint}"


def _worlds(owner: Batched) -> int | None:
    for name, layouts in _fields(type(owner))[0]:
        value = getattr(owner, name)
        if value is not None and layouts and layouts[value.ndim][0][0] == "worlds":
            return value.shape[0]
    return next((value.worlds for value in owner.__dict__.values() if isinstance(value, Batched)), None)


def _arrays(owner: Batched) -> list[tuple[str, Tensor, tuple[str, ...]]]:
    """Return name, values and axis names of all arrays, nested batches first."""
    arrays = [array for value in owner.__dict__.values() if isinstance(value, Batched) for array in _arrays(value)]
    for name, layouts in _fields(type(owner))[0]:
        value = getattr(owner, name)
        if value is not None:
            axes = layouts.get(value.ndim)
            arrays.append((name, value, tuple(axis for axis, _ in axes) if axes else ("",) * value.ndim))
    return arrays


def _draw(axes: "Axes", name: str, value: Tensor, names: tuple[str, ...], spec: StateSpec | None, worlds: int) -> None:
    shown = value.detach().cpu().double()
    if names and names[0] == "worlds":
        shown = shown[:worlds]
    axes.set_ylabel(name)
    labels = _labels(spec, names[-1] if names else "")
    if shown.ndim == 3:
        time = torch.arange(shown.shape[1]) * (1.0 if spec is None else spec.dt)
        for column in range(shown.shape[-1]):
            for world, line in enumerate(shown[..., column]):
                label = labels[column] if labels and not world else None
                axes.plot(time, line, color=f"C{column % 10}", linewidth=0.8, label=label)
        axes.set_xlabel("frame" if spec is None else "time [s]")
        if labels:
            axes.legend(fontsize="x-small", loc="upper right")
        return
    for row in shown.reshape(-1, shown.shape[-1] if shown.ndim else 1):
        axes.plot(range(len(row)), row, "o", markersize=3)
    if labels:
        axes.set_xticks(range(len(labels)), labels, fontsize="x-small")


def _labels(spec: StateSpec | None, axis: str) -> tuple[str, ...]:
    if spec is None:
        return ()
    channels = tuple(channel.name for channel in spec.channels)
    return {
        "nq": spec.q_names,
        "nv": spec.qd_names,
        "nu": spec.controls,
        "nx": channels,
        "nc": spec.contacts,
        "size": (*spec.q_names, *spec.qd_names, *channels),
    }.get(axis, ())


@dataclass(frozen=True, eq=False, repr=False)
class State(Batched):
    """Generalised coordinates of a batch of worlds.

    Attributes:
        q: Positions [rad or m], shape [worlds, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, nv].
        channels: Further measured values (`StateSpec.channels`), shape [worlds, nx]; None if there are none.
    """

    q: Float[Tensor, "worlds nq"]
    qd: Float[Tensor, "worlds nv"]
    channels: Float[Tensor, "worlds nx"] | None = None

    def where(self, mask: Tensor, other: "State") -> "State":
        """Return these states where `mask` is true, shape [worlds], and the states of `other` elsewhere."""
        chosen, channels = mask[:, None], other.channels if self.channels is None else self.channels
        if self.channels is not None and other.channels is not None:
            channels = torch.where(chosen, self.channels, other.channels)
        return State.make_unchecked(
            q=torch.where(chosen, self.q, other.q), qd=torch.where(chosen, self.qd, other.qd), channels=channels
        )


@dataclass(frozen=True, eq=False, repr=False)
class Control(Batched):
    """Control during one frame: torques, PD targets, or their sum.

    Attributes:
        torque: Joint torques or forces [N m or N], shape [worlds, nu]; None for zero.
        target: PD targets [rad or m], or commands of actuators, shape [worlds, nu]; None without a PD controller.
        kp: Stiffness of the PD controller [N m/rad or N/m], shape [worlds, nu] or broadcastable.
        kd: Damping of the PD controller [N m s/rad or N s/m], shape [worlds, nu] or broadcastable.
    """

    torque: Float[Tensor, "worlds nu"] | None = None
    target: Float[Tensor, "worlds nu"] | None = None
    kp: Float[Tensor, "..."] | None = None
    kd: Float[Tensor, "..."] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class WorldParameters(Batched):
    """Named quantities of the robot and its contacts with one value per world.

    Dynamics read `numbers` in every frame, so that they may be edited in place between frames, for instance when an
    episode begins.

    Attributes:
        names: Names of the quantities, such as "root.mass" (`neurodyn quantities`).
        numbers: Their values (SI units), shape [worlds, quantities].
    """

    names: tuple[str, ...]
    numbers: Float[Tensor, "worlds quantities"]

    def __post_init__(self) -> None:
        """Check names and shape."""
        super().__post_init__()
        if len(self.names) != self.numbers.shape[1] or len(set(self.names)) != len(self.names):
            raise InputError(
                f"WorldParameters has {len(self.names)} names ({len(set(self.names))} different ones) and numbers of "
                f"shape {list(self.numbers.shape)}; valid: [worlds, names], each name once"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "WorldParameters":
        """Return parameters from values by name, each of shape [worlds], or [] for the same in all worlds.

        Raises:
            InputError: There are no values, or their shapes differ.
        """
        columns = [torch.as_tensor(value, dtype=getattr(value, "dtype", torch.float32)) for value in values.values()]
        sizes = {len(column) for column in columns if column.ndim == 1}
        if not columns or any(column.ndim > 1 for column in columns) or len(sizes) > 1:
            shapes = {name: list(column.shape) for name, column in zip(values, columns, strict=True)}
            raise InputError(f"Environment.parameters have the shapes {shapes}; valid: [worlds], or [] for all worlds")
        worlds = sizes.pop() if sizes else 1
        return cls(tuple(values), torch.stack([column.expand(worlds) for column in columns], 1))

    def rows(self, index: Tensor | slice) -> "WorldParameters":
        """Return the values of some of the worlds; a single row applies to all worlds."""
        return self if len(self.numbers) == 1 else WorldParameters(self.names, self.numbers[index])

    def __getitem__(self, name: str) -> Tensor:
        """Return the values of a quantity, shape [worlds]."""
        return self.numbers[:, self.names.index(name)]


@dataclass(frozen=True, eq=False, repr=False)
class Environment(Batched):
    """Gravity and ground of a batch of worlds, and quantities of the robot that differ between them.

    Attributes:
        gravity: Gravity [m/s^2], world axes, shape [3] or [worlds, 3]; None for the robot's own.
        ground: The shapes around the robot, with a pose per world; None for free space.
        parameters: Quantities with a value per world, also as a mapping from names to values of shape [worlds]; None
            for the robot's own.
    """

    gravity: Float[Tensor, "3"] | Float[Tensor, "worlds 3"] | None = None
    ground: Ground | None = None
    parameters: WorldParameters | None = None

    def __post_init__(self) -> None:
        """Convert parameters that are given as a mapping; see `Batched`."""
        if isinstance(self.parameters, Mapping):
            self.__dict__["parameters"] = WorldParameters.of(self.parameters)
        super().__post_init__()

    def to(self, target: torch.device | torch.dtype | str) -> "Environment":
        """Return the environment on another device or of another dtype; ground shapes move when queried."""
        moved, ground = super().to(target), self.ground
        if ground is None or ground.pose is None:
            return moved
        return replace(moved, ground=ground.at_pose(ground.pose.to(target)))


@dataclass(frozen=True, eq=False, repr=False)
class Window(Batched):
    """Recent history of a batch of worlds: the T frames up to the present state.

    Attributes:
        q: Positions at the start of each frame and at present [rad or m], shape [worlds, T + 1, nq].
        qd: Velocities at the same times [rad/s or m/s], shape [worlds, T + 1, nv].
        torque: Controls during the frames: torques [N m or N], or as `StateSpec.control_kind` says, shape [worlds, T,
            nu].
        channels: Further measured values, shape [worlds, T + 1, nx]; None if there are none.
        parts: Controls during equal parts of the frames, shape [worlds, T, parts, nu]; None if only their means,
            `torque`, are known.
    """

    q: Float[Tensor, "worlds states nq"]
    qd: Float[Tensor, "worlds states nv"]
    torque: Float[Tensor, "worlds states-1 nu"]
    channels: Float[Tensor, "worlds states nx"] | None = None
    parts: Float[Tensor, "worlds states-1 parts nu"] | None = None

    @property
    def commands(self) -> Tensor:
        """`parts`, or `torque` without them."""
        return self.torque if self.parts is None else self.parts

    @property
    def present(self) -> State:
        """The present state, which is the last of the window."""
        return State(self.q[:, -1], self.qd[:, -1], None if self.channels is None else self.channels[:, -1])


@dataclass(frozen=True, eq=False, repr=False)
class Step(Batched):
    """Prediction of one frame.

    Attributes:
        state: The state after the frame.
        contacts: Probability that each body of `StateSpec.contacts` touches something, shape [worlds, nc]; None if the
            dynamics do not predict it.
        termination: Probability that the episode terminated in the frame (a fall), shape [worlds]; None if the dynamics
            do not predict it.
        epistemic: Standard deviation of the ensemble members' means of [q, qd, channels], in the units of the state,
            shape [worlds, nq + nv + nx]; None without an ensemble.
        aleatoric: Standard deviation of the predicted noise, in the units and shape of `epistemic`; None if the
            dynamics do not predict it.
        applied: Control that was applied to a robot, within its limits, shape [worlds, nu]; None for the requested one.
    """

    state: State
    contacts: Float[Tensor, "worlds nc"] | None = None
    termination: Float[Tensor, " worlds"] | None = None
    epistemic: Float[Tensor, "worlds size"] | None = None
    aleatoric: Float[Tensor, "worlds size"] | None = None
    applied: Float[Tensor, "worlds nu"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Batched):
    """A roll-out of T frames: the initial state and the state after each frame.

    Attributes:
        q: Positions [rad or m], shape [worlds, T + 1, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, T + 1, nv].
        channels: Further measured values, shape [worlds, T + 1, nx]; None if there are none.
        aleatoric: Standard deviation of the predicted noise in [q, qd, channels], shape [worlds, T, nq + nv + nx]; None
            if the dynamics do not predict it.
        epistemic: Standard deviation of the ensemble members' means, same shape; None without an ensemble.
    """

    q: Float[Tensor, "worlds states nq"]
    qd: Float[Tensor, "worlds states nv"]
    channels: Float[Tensor, "worlds states nx"] | None = None
    aleatoric: Float[Tensor, "worlds states-1 size"] | None = None
    epistemic: Float[Tensor, "worlds states-1 size"] | None = None

    @classmethod
    def of_states(cls, states: Sequence[State]) -> Self:
        """Return the roll-out through states one after another, without their channels."""
        return cls(torch.stack([state.q for state in states], 1), torch.stack([state.qd for state in states], 1))

    def until(self, frames: int) -> "Trajectory":
        """Return the first `frames` frames."""
        states = {n: None if (x := getattr(self, n)) is None else x[:, : frames + 1] for n in ("q", "qd", "channels")}
        stds = {n: None if (x := getattr(self, n)) is None else x[:, :frames] for n in ("aleatoric", "epistemic")}
        return replace(self, **states, **stds)


def present_state(context: State | Window) -> State:
    """Return the present state of a context."""
    return context.present if isinstance(context, Window) else context


class _Elsewhere(torch.Generator):
    """Stands in for a generator on the `meta` device, which has none because its tensors hold no values."""

    device = torch.device("meta")


def device_generator(device: torch.device, seed: int) -> torch.Generator:
    """Return a seeded generator on a device."""
    if device.type == "meta":
        return _Elsewhere()
    return torch.Generator(device).manual_seed(seed)


class RecordedEnvironments:
    """Gravity and ground of the episodes in a store, and quantities of the robot in which they differ."""

    def __init__(
        self,
        store: "Store",
        device: torch.device | str = "cpu",
        names: Sequence[str] = (),
        *,
        surroundings: bool = True,
    ) -> None:
        """Read a store; those of its parameters that are in `names` become parameters of the worlds.

        Without `surroundings`, gravity and ground are left out.
        """
        scene, own = (store.header.scene, store.header.fingerprint) if surroundings else (None, None)
        self._ground = None if scene is None else Ground(scene)
        self._gravity = None if own is None else torch.tensor(own.gravity, device=device)
        self._device, known = device, list(store.header.parameters)
        self._names = tuple(name for name in names if name in known)
        self._columns = [known.index(name) for name in self._names]

    @classmethod
    def like(
        cls, environment: Environment, store: "Store | None" = None, names: Sequence[str] = ()
    ) -> "RecordedEnvironments":
        """Return environments with gravity and scene of another environment, and other poses of the scene.

        Of a store, those of its parameters that are in `names` become parameters of the worlds; without one, those of
        the environment have other values.
        """
        made = cls.__new__(cls)
        made._ground, made._gravity, made._device = environment.ground, environment.gravity, "cpu"
        own = () if environment.parameters is None else environment.parameters.names
        known = list(own if store is None else store.header.parameters)
        made._names = tuple(name for name in (own if store is None else names) if name in known)
        made._columns = [known.index(name) for name in made._names]
        return made

    def of(self, windows: "Windows") -> Environment:
        """Return the environment of windows, one world each."""
        return self.at(windows.ground, windows.parameters)

    def at(self, pose: Tensor | None, parameters: Tensor | None = None) -> Environment:
        """Return the environment of worlds with the scene at `pose` and values of the store's parameters.

        Shapes [worlds, 7] and [worlds, parameters].
        """
        ground = self._ground
        if ground is not None and pose is not None:
            ground = ground.at_pose(pose.to(self._device))
        if not self._names or parameters is None:
            return Environment(gravity=self._gravity, ground=ground)
        own = WorldParameters(self._names, parameters[:, self._columns].to(self._device))
        return Environment(gravity=self._gravity, ground=ground, parameters=own)
