# SPDX-License-Identifier: Apache-2.0
r"""Roll-out errors of a hybrid model along its log, linearised around the log, to train networks on joints fast.

The error e of a roll-out (positions, then velocities) obeys, as long as it is small,

$$e_{t+1} = A_t e_t + B_t \tau_t + d_t$$

with the Jacobians A and B of the frame from the logged state t by state and torques, and the error d of that frame
without networks. All three are computed once; a training step then costs only the networks, whose torque is taken as
constant over a frame, for inputs in its middle. The memory of drives follows the log; its part in A is neglected.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.description.blueprint import FREE, Augmentation, Blueprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.windows import Windows, concatenate
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.linearisation import linearise
from neurodyn.dynamics.rollouts import context_of
from neurodyn.learn.hybrid import NetworkLearner, NetworkTrainingSettings, NetworkWindows

_TORQUE_FRAMES = 500
"""Most frames at which the effect of torques is computed; others take that of the nearest."""
_PROBE = 0.2
"""Torque of that computation, as a share of a network's scale."""


@dataclass(frozen=True)
class LinearisedErrors:
    """Linearised errors of N frames of a log, float32, and windows among them.

    Attributes:
        by_error: A, shape [N, 2 nv, 2 nv].
        by_torque: B, shape [N, 2 nv, J], with a column for each torque of the networks.
        own: d, shape [N, 2 nv].
        values: Inputs of the networks in the middle of frames along the log, by network, shape [N, inputs] each.
        slopes: Derivative of each input by the error of its coordinate, the same shapes.
        sources: Coordinate of the error that each input depends on, by network, shape [inputs] each.
        rows: Frames of windows, int64, shape [W, past + T].
        begun: Errors e of the states from which roll-outs of windows begin, shape [W, 2 nv]; 0 for those of the log.
        past: Frames of each window in which the memory of networks settles along the log.
    """

    by_error: Tensor
    by_torque: Tensor
    own: Tensor
    values: list[Tensor]
    slopes: list[Tensor]
    sources: list[Tensor]
    rows: Tensor
    begun: Tensor
    past: int

    def roll_out(self, networks: "TorqueNetworks", windows: Tensor | slice = slice(None)) -> Tensor:
        """Return the errors along windows, shape [W, T, 2 nv]; differentiable in the networks' weights.

        Args:
            networks: The networks.
            windows: Numbers of the windows.
        """
        rows = self.rows[windows]
        error = self.own.new_zeros(len(rows), self.own.shape[-1])
        memory, errors = networks.begin(len(rows)), []
        for number, frame in enumerate(rows.unbind(1)):
            if number == self.past:
                error = self.begun[windows]
            inputs = [
                value[frame] + slope[frame] * error[:, source]
                for value, slope, source in zip(self.values, self.slopes, self.sources, strict=True)
            ]
            torque, memory = networks(inputs, memory)
            if number >= self.past:
                error = torch.baddbmm(self.own[frame][..., None], self.by_error[frame], error[..., None]).baddbmm(
                    self.by_torque[frame], torque[..., None]
                )[..., 0]
                errors.append(error)
        return torch.stack(errors, 1)


class TorqueNetworks:
    """Networks of a blueprint as tensor operations, one step a frame; those of equal widths are computed together."""

    def __init__(self, networks: Sequence[Augmentation], leaves: Sequence[Tensor], dt: float, substeps: int) -> None:
        """Read weights of networks without shared ones.

        Args:
            networks: The networks.
            leaves: Matrices and biases of all networks in turn.
            dt: Length of a frame [s].
            substeps: Steps of the engine in it.
        """
        self._networks, kinds, first = networks, defaultdict[object, list[int]](list), 0
        own: list[list[Tensor]] = []
        for number, one in enumerate(networks):
            count = 2 * (len(one.widths) - 1)
            own.append([leaf.float() for leaf in leaves[first : first + count]])
            first += count
            kinds[one.widths, one.activation, one.memory_time].append(number)
        self._groups = [
            (numbers, [torch.stack([own[k][part] for k in numbers]) for part in range(len(own[numbers[0]]))])
            for numbers in kinds.values()
        ]
        self._dt, self._substeps = dt, substeps
        self._scales = [torch.tensor(one.input_scale or (1.0,) * len(one.inputs)) for one in networks]
        self._sizes = [torch.tensor(one.output_scale or (1.0,) * len(one.quantities)) for one in networks]

    def begin(self, worlds: int) -> list[Tensor]:
        """Return the memories at a start, by group of networks, shape [networks, worlds, memory] each."""
        return [torch.zeros(len(numbers), worlds, self._networks[numbers[0]].memory) for numbers, _ in self._groups]

    def __call__(self, inputs: Sequence[Tensor], memories: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return torques, shape [worlds, J], and the memories after a frame."""
        torques: list[Tensor] = [torch.empty(0)] * len(self._networks)
        after = []
        for (numbers, weights), memory in zip(self._groups, memories, strict=True):
            one = self._networks[numbers[0]]
            y = torch.stack([inputs[k] / self._scales[k] for k in numbers])
            y = torch.cat([y, memory], -1)
            for layer in range(0, len(weights), 2):
                y = torch.baddbmm(weights[layer + 1][:, None], y, weights[layer].mT)
                if layer + 2 < len(weights):
                    y = ACTIVATIONS[one.activation].apply(y)
            torque, candidate, gate = y.split([one.outputs, one.memory, one.memory], -1)
            for k, number in enumerate(numbers):
                torques[number] = torque[k] * self._sizes[number]
            share = min(1.0, self._dt / self._substeps / one.memory_time) * gate.sigmoid()
            kept = (1.0 - share) ** self._substeps
            after.append(kept * memory + (1.0 - kept) * candidate.tanh())
        return torch.cat(torques, -1), after


def can_be_linearised(plain: HybridDynamics, blueprint: Blueprint) -> bool:
    """Return whether a model can be linearised along a log, and its networks act on torques of scalar joints alone.

    Contacts are too abrupt for it, and springs in drives swing in a memory whose part it neglects.
    """
    scalar = {joint.name for joint in plain.spec.joints if joint.scalar}
    return (
        not plain.mechanism.hidden
        and plain.contact_points is None
        and not any(drive.elastic for drive in plain.mechanism.drives.values())
        and all(
            one.structure == FREE and one.mode == "add" and not one.shared
            and all(name.removeprefix("torque.") in scalar for name in one.quantities)
            and all(_follows_from_joints(plain.spec, name) for name in one.inputs)
            for one in blueprint.augmentations
        )
    )  # fmt: skip


def _parse(name: str) -> tuple[str, str, str]:
    """Return the function of an input, or nothing, the kind of its quantity, and joint or control."""
    function, _, inner = name.removesuffix(")").rpartition("(")
    kind, _, of = inner.partition(".")
    return function, kind, of


def _follows_from_joints(spec: StateSpec, name: str) -> bool:
    """Return whether an input follows from joints and commands of a frame."""
    function, kind, of = _parse(name)
    known = {"q": spec.q_names, "qd": spec.qd_names, "control": spec.controls}
    return function in ("", "sin", "cos") and of in known.get(kind, ())


@torch.no_grad()
def linearise_along(
    plain: HybridDynamics, with_networks: HybridDynamics, windows: Windows, past: int, settling: int,
    environments: RecordedEnvironments, begun: Windows | None = None,
) -> LinearisedErrors:  # fmt: skip
    """Linearise a model along windows of a log.

    Args:
        plain: The model without networks.
        with_networks: The model with them.
        windows: Windows of `past` + `settling` frames and those that count.
        past: Frames in which motors settle.
        settling: Frames after that in which networks settle.
        environments: Environments of the windows.
        begun: The frames of the windows that count, with other first states; None for those of the log.
    """
    spec, whole = plain.spec, windows.frames - past
    episode, start = windows.source.places.unbind(1)
    places = torch.stack([episode[:, None].expand(-1, whole), start[:, None] + torch.arange(whole)], -1)
    unique, rows = places.flatten(0, 1).unique(dim=0, return_inverse=True)
    rows = rows.view(-1, whole)
    first = torch.zeros(len(unique), dtype=torch.long).scatter_(0, rows.flatten(), torch.arange(rows.numel()))
    frames = [windows.rows(first[first % whole == t] // whole).cut(t, past + t + 1).after(past) for t in range(whole)]
    order = torch.cat([torch.arange(len(unique))[first % whole == t] for t in range(whole)])
    single = concatenate([one for one in frames if one.count]).rows(order.argsort())
    where, context = environments.of(single), context_of(single)
    by_error = linearise(plain, context, single.control[:, 0], where).A
    after = plain.simulate(context, single.commands, plain.physical().detach(), plain.weights.detach(), where)
    own = torch.cat([position_difference(spec, after.q[:, 1], single.q[:, 1]), after.qd[:, 1] - single.qd[:, 1]], -1)
    stride = max(1, single.count // _TORQUE_FRAMES)
    by_torque = _effects_of_torques(with_networks, single.rows(slice(0, None, stride)), environments)
    nearest = (torch.arange(single.count) // stride).clamp_max(len(by_torque) - 1)
    values, slopes, sources = [], [], []
    for one in with_networks.config.blueprint.augmentations:
        columns = [_along(spec, name, single) for name in one.inputs]
        values.append(torch.stack([value for value, _, _ in columns], -1).float())
        slopes.append(torch.stack([slope for _, slope, _ in columns], -1).float())
        sources.append(torch.tensor([source for _, _, source in columns]))
    first_errors = own.new_zeros(len(rows), own.shape[-1])
    if begun is not None:
        logged = windows.after(past + settling)
        moved = position_difference(spec, begun.q[:, 0], logged.q[:, 0])
        first_errors = torch.cat([moved, begun.qd[:, 0] - logged.qd[:, 0]], -1)
    return LinearisedErrors(
        by_error.float(), by_torque[nearest].float(), own.float(), values, slopes, sources, rows, first_errors.float(),
        settling,
    )  # fmt: skip


def _effects_of_torques(dynamics: HybridDynamics, frames: Windows, environments: RecordedEnvironments) -> Tensor:
    """Return the derivative of the state after frames by constant torques in them, shape [W, 2 nv, J]."""
    networks, silent = dynamics.config.blueprint.augmentations, torch.zeros_like(dynamics.weights)
    state = replace(frames, past=None)

    def after(weights: Tensor) -> Tensor:
        path = dynamics.simulate(
            context_of(state), state.commands, dynamics.physical().detach(), weights, environments.of(state)
        )
        return torch.cat([position_difference(dynamics.spec, path.q[:, 1], frames.q[:, 0]), path.qd[:, 1]], -1)

    columns = []
    for one, begin in zip(networks, dynamics.config.blueprint.firsts, strict=True):
        bias = begin + one.weights - one.widths[-1]
        for output, size in enumerate(one.output_scale or (1.0,) * one.outputs):
            ends = []
            for sign in (1.0, -1.0):
                weights = silent.clone()
                weights[bias + output] = sign * _PROBE
                ends.append(after(weights))
            columns.append((ends[0] - ends[1]) / (2.0 * _PROBE * size))
    return torch.stack(columns, -1)


def _along(spec: StateSpec, name: str, frames: Windows) -> tuple[Tensor, Tensor, int]:
    """Return an input in the middle of frames, its derivative by the error of its coordinate, and that coordinate."""
    function, kind, of = _parse(name)
    if kind == "control":
        value = frames.control[:, 0, spec.controls.index(of)]
        return value, torch.zeros_like(value), 0
    q, names = (frames.q, spec.q_names) if kind == "q" else (frames.qd, spec.qd_names)
    column = names.index(of)
    value = 0.5 * (q[:, 0, column] + q[:, 1, column])
    source = spec.tangent_names.index(of) if kind == "q" else spec.nv + column
    if function:
        return (value.sin(), value.cos(), source) if function == "sin" else (value.cos(), -value.sin(), source)
    return value, torch.ones_like(value), source


class LinearisedLearner(NetworkLearner):
    """Trains networks on linearised errors along the log; validated by roll-outs like any other."""

    def __init__(
        self, model: HybridDynamics, windows: NetworkWindows, settings: NetworkTrainingSettings,
        errors: LinearisedErrors, *, seed: int,
    ) -> None:  # fmt: skip
        """Prepare a training; other arguments: see `NetworkLearner`."""
        super().__init__(model, windows, settings, seed=seed)
        self._linearised, self._scale = errors, windows.scale.float()

    def draw(self) -> None:
        """Draw windows among those that are linearised."""
        windows = len(self._linearised.rows)
        self._batch = torch.randint(windows, (self.settings.batch,), generator=self._generator)

    def windows(self) -> int:
        """Return the number of windows in the batch."""
        return len(self._batch)

    def keep_windows(self, rows: Tensor) -> None:
        """Replace the batch by some of its windows."""
        self._batch = self._batch[rows]

    def loss(self) -> Tensor:
        """Return the error of linearised roll-outs plus the penalty."""
        config = self._model.config
        networks = TorqueNetworks(
            config.blueprint.augmentations, self._leaves, self._model.spec.dt, config.substeps
        )  # fmt: skip
        errors = self._linearised.roll_out(networks, self._batch) / self._scale
        return errors.abs().mean() + self.settings.regularisation * self._flat().square().sum()
