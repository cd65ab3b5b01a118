# SPDX-License-Identifier: Apache-2.0
r"""Checkpoints of Robotic World Model (`pretrain_rnn_ens.pt`), read as ensembles with the same forecasts.

Source: system_dynamics.py and architectures/ of https://github.com/leggedrobotics/rsl_rl_rwm. A checkpoint's
"system_dynamics_state_dict" holds two recurrent trunks that all members share (`state_base.memory.rnn`,
`auxiliary_base.memory.rnn`: GRUs of torch) and heads with one hidden layer (ReLU) for each member:
`state_heads.M.state_mean_layers` and `.state_logstd_layers` on the first trunk, `auxiliary_heads.M.contact_layers` and
`.termination_layers` on the second. With z the normalised state, the mean is $z + head(h)$; the logarithm of the
standard deviation is softly bounded by `state_min_logstd` and that plus $\exp$(`state_log_delta_logstd`).

The ensemble has one trunk of the total width. Its matrices are block diagonal, so that each head reads its own part.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn

from neurodyn.core.config import Config, read_config
from neurodyn.core.errors import InputError
from neurodyn.data.row_layout import RowLayout
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.interop.checkpoints import read_arrays, take
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.nets.members import MemberGRU, MemberLinear
from neurodyn.robots import Robot

CONTEXT = 32
"""Number of warm-up frames before a forecast."""
STATISTICS = "rwm.yaml"
"""File beside a robot's declaration with the normalisation statistics of its published models."""

_EXPECTED = "the networks of a checkpoint of Robotic World Model"
_HEAD = re.compile(r"state_heads\.(\d+)\..*")
_FIXED = -20.0  # log standard deviation of networks that predict none


class RwmStatistics(Config, frozen=True):
    """Normalisation statistics of states and actions, in the column order of `data.row_layout`.

    Attributes:
        state_mean: Mean of each column of the state.
        state_std: Standard deviation of each column of the state.
        action_mean: Mean of each component of an action.
        action_std: Standard deviation of each component of an action.
    """

    state_mean: tuple[float, ...]
    state_std: tuple[float, ...]
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("state_std", "action_std"):
            if not all(value > 0 for value in getattr(self, name)):
                raise ValueError(f"{name} has numbers that are not above 0")


@dataclass(frozen=True)
class _RwmNetworks:
    """A checkpoint's arrays by name.

    Attributes:
        arrays: The arrays.
        where: The file, for messages.
        trunks: Prefixes of the trunks; the second exists if the model predicts events.
        members: Number of members.
    """

    arrays: Mapping[str, Tensor]
    where: str
    trunks: tuple[str, ...]
    members: int

    def get(self, name: str) -> Tensor:
        return take(self.arrays, name, self.where, _EXPECTED)

    def gru(self, trunk: str) -> nn.GRU:
        stem = f"{trunk}.memory.rnn."
        layers = sum(name.startswith(f"{stem}weight_ih_l") for name in self.arrays)
        first, second = self.get(f"{stem}weight_ih_l0"), self.get(f"{stem}weight_hh_l0")
        width = second.shape[-1]
        if len(first) != 3 * width:
            kind = "LSTM" if len(first) == 4 * width else f"network with {len(first)} gates of width {width}"
            raise InputError(f"{self.where}: {trunk} is an {kind}; valid: a GRU")
        gru = nn.GRU(first.shape[1], width, layers, batch_first=True)
        state = {name: self.get(f"{stem}{name}") for name, _ in gru.named_parameters()}
        try:
            gru.load_state_dict(state)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f"{self.where}: {trunk} has arrays of other shapes ({reason})") from None
        return gru

    def head(self, member: int, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Return weight [out, in] and bias [out] of a head's hidden and last layer; None if there is no such head."""
        stem = f"{name.replace('#', str(member))}."
        indexes = sorted({key.removeprefix(stem).split(".")[0] for key in self.arrays if key.startswith(stem)})
        if not indexes:
            return None
        if len(indexes) != 2:
            raise InputError(f"{self.where}: {stem[:-1]} has {len(indexes)} layers; valid: a hidden one and the last")
        w1, b1, w2, b2 = (self.get(f"{stem}{index}.{part}") for index in indexes for part in ("weight", "bias"))
        return w1, b1, w2, b2


def read_rwm(file: Path, robot: Robot, statistics: Path | None = None) -> WorldModel:
    """Read a checkpoint, or its named arrays (.npz, .safetensors), as a world model; see `formats.MODEL_LAYOUTS`.

    Args:
        file: The checkpoint; nothing in it is executed.
        robot: Robot with the row layout (`data.row_layout`) that the networks were trained on.
        statistics: YAML file of `RwmStatistics`, which are not in checkpoints; None for the robot's own.
    """
    if robot.rows_path is None:
        raise InputError(f"robot {robot.name!r}: declares no rows; valid: a robot whose `rows` are those of the log")
    rows = read_config(robot.rows_path, RowLayout)
    networks = _networks(read_arrays(file, "system_dynamics_state_dict", "Robotic World Model"), str(file))
    normalisation = _statistics(robot, rows, statistics)
    model = _model(networks, robot, rows)
    with torch.no_grad():
        _fill(model, networks, rows, normalisation)
    return model.requires_grad_(False).eval()


def _networks(arrays: dict[str, Tensor], where: str) -> _RwmNetworks:
    heads = {int(match[1]) for match in map(_HEAD.fullmatch, arrays) if match}
    if any(name.startswith("state_base.layers.") for name in arrays):
        raise InputError(f"{where}: its trunk has no memory (type mlp); valid: a recurrent one (rnn_type gru)")
    if not heads:
        raise InputError(f"{where}: holds no 'state_heads.0'; expected {_EXPECTED}")
    events = any(re.match(r"auxiliary_heads\.\d+\.(contact|termination)_layers", name) for name in arrays)
    trunks = ("state_base", "auxiliary_base") if events else ("state_base",)
    return _RwmNetworks(arrays, where, trunks, len(heads))


def _statistics(robot: Robot, rows: RowLayout, given: Path | None) -> RwmStatistics:
    path = given or Path(robot.folder) / STATISTICS
    if given is None and not path.is_file():
        raise InputError(
            f"robot {robot.name!r}: comes without the statistics of such models; give --statistics FILE.yaml with "
            "state_mean, state_std, action_mean and action_std"
        )
    numbers, widths = read_config(path, RwmStatistics), rows.widths
    for name in numbers.__struct_fields__:
        wanted = widths[name.split("_")[0]]
        if len(getattr(numbers, name)) != wanted:
            raise InputError(f"{path}: {name} has {len(getattr(numbers, name))} numbers; valid: {wanted}")
    return numbers


def _model(networks: _RwmNetworks, robot: Robot, rows: RowLayout) -> WorldModel:
    """Return a model with the networks' sizes and random weights."""
    grus, widths, where = [networks.gru(trunk) for trunk in networks.trunks], rows.widths, networks.where
    for trunk, gru in zip(networks.trunks, grus, strict=True):
        if gru.input_size != widths["state"] + widths["action"]:
            wanted = f"the rows of {robot.name!r} have {widths['state']} + {widths['action']}"
            raise InputError(f"{where}: {trunk} reads {gru.input_size} columns; {wanted}")
        if gru.num_layers != grus[0].num_layers:
            depths = f"{grus[0].num_layers} and {gru.num_layers}"
            raise InputError(f"{where}: its trunks have {depths} layers; valid: as many")
    events = {name: networks.head(0, f"auxiliary_heads.#.{name}_layers") for name in ("contact", "termination")}
    contacts = 0 if events["contact"] is None else len(events["contact"][3])
    if contacts not in {0, len(rows.contacts)}:
        raise InputError(f"{where}: predicts {contacts} contacts; the rows of {robot.name!r} have {len(rows.contacts)}")
    spec = msgspec.structs.replace(rows.spec, context=CONTEXT, contacts=rows.contacts if contacts else ())
    alone = [networks.head(0, f"state_heads.#.state_{part}_layers") for part in ("mean", "logstd")]
    together = sum(len(head[1]) for head in events.values() if head is not None)
    net = EnsembleConfig(
        members=networks.members, trunk="shared", width=sum(gru.hidden_size for gru in grus),
        depth=grus[0].num_layers, head=max(together, *(len(head[1]) for head in alone if head is not None), 1),
        skip=False, clip=None, activation="relu",
    )  # fmt: skip
    terminates = events["termination"] is not None
    return WorldModel(spec, net, terminates=terminates, own_bounds=True, declaration=robot.name)


def _fill(model: WorldModel, networks: _RwmNetworks, rows: RowLayout, statistics: RwmStatistics) -> None:
    """Copy the weights into a model, with columns in its order and units."""
    columns, state = _columns(rows), model.observation.size
    deviation, nominal = torch.tensor(statistics.state_std)[columns], torch.tensor(rows.nominal)
    mean = torch.tensor(statistics.state_mean)[columns]
    mean[: len(nominal)] += nominal
    command = nominal + rows.action_scale * torch.tensor(statistics.action_mean)
    model.normaliser.mean.copy_(torch.cat([mean, command]))
    model.normaliser.std.copy_(torch.cat([deviation, rows.action_scale * torch.tensor(statistics.action_std)]))
    model.normaliser.gain.copy_(1.0 / model.normaliser.std)
    model.scale.copy_(deviation)
    model.state_scale.copy_(deviation)
    model.growth.zero_()
    for fitted in (model.fitted, model.normaliser.fitted):
        fitted.fill_(True)
    inputs = torch.cat([columns, torch.arange(state, model.observation.inputs)])
    starts = _fill_trunk(model, [networks.gru(trunk) for trunk in networks.trunks], inputs)
    net = model.net
    for member in range(networks.members):
        _fill_head(net.mean_hidden, net.mean, member, _head(networks, member, "state_mean"), columns)
        _fill_spread(model, networks, member, columns)
    if net.event_hidden is not None and net.logits is not None:
        _fill_events(net.event_hidden, net.logits, networks, starts[-1])


def _columns(rows: RowLayout) -> Tensor:
    """Return each of our state's columns [q, qd, base, torques] as an index into a row's state."""
    n = len(rows.joints)
    return torch.cat([torch.arange(9, 9 + 2 * n), torch.arange(9), torch.arange(9 + 2 * n, 9 + 3 * n)])


def _fill_trunk(model: WorldModel, grus: list[nn.GRU], inputs: Tensor) -> list[int]:
    """Fill the trunk with block-diagonal matrices; return the start of each block in the hidden state."""
    width = model.net.config.width
    starts = [sum(gru.hidden_size for gru in grus[:index]) for index in range(len(grus))]
    for depth, layer in enumerate(model.net.trunk):
        assert isinstance(layer, MemberGRU)
        for values in layer.parameters():
            values.zero_()
        for start, gru in zip(starts, grus, strict=True):
            own, narrow = MemberGRU.together([gru], depth), gru.hidden_size
            block = slice(start, start + narrow)
            for gate in range(3):
                to = slice(gate * width + start, gate * width + start + narrow)
                source = slice(gate * narrow, (gate + 1) * narrow)
                into = own.project.weight[:, :, source]
                if depth:
                    layer.project.weight[:, block, to] = into
                else:
                    layer.project.weight[:, :, to] = into[:, inputs]
                layer.project.bias[:, :, to] = own.project.bias[:, :, source]
                layer.weight[:, block, to] = own.weight[:, :, source]
            layer.bias[:, :, block] = own.bias
    return starts


def _head(networks: _RwmNetworks, member: int, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layers = networks.head(member, f"state_heads.#.{name}_layers")
    if layers is None:
        raise InputError(f"{networks.where}: holds no 'state_heads.{member}.{name}_layers.0'; expected {_EXPECTED}")
    return layers


def _fill_head(
    hidden: MemberLinear, last: MemberLinear, member: int, head: tuple[Tensor, Tensor, Tensor, Tensor], columns: Tensor
) -> None:
    """Fill a member's head, which reads the first block of the hidden state and returns columns of a row's state."""
    w1, b1, w2, b2 = head
    for values in (hidden.weight, hidden.bias, last.weight, last.bias):
        values[member] = 0.0
    hidden.weight[member, : w1.shape[1], : len(w1)] = w1.T
    hidden.bias[member, 0, : len(b1)] = b1
    last.weight[member, : w2.shape[1]] = w2[columns].T
    last.bias[member, 0] = b2[columns]


def _fill_spread(model: WorldModel, networks: _RwmNetworks, member: int, columns: Tensor) -> None:
    """Fill a member's standard-deviation head and bounds; without a head the deviation is nearly 0."""
    net, bounds = model.net, model.log_std_bounds
    head = networks.head(member, "state_heads.#.state_logstd_layers")
    if head is None:
        for values in (net.spread_hidden.weight, net.spread_hidden.bias, net.log_std.weight):
            values[member] = 0.0
        net.log_std.bias[member], bounds[0], bounds[1] = _FIXED, 2.0 * _FIXED, 0.0
        return
    _fill_head(net.spread_hidden, net.log_std, member, head, columns)
    least, delta = (networks.get(f"state_heads.{member}.state_{name}") for name in ("min_logstd", "log_delta_logstd"))
    bounds[0, member] = least.reshape(1, -1)[:, columns]
    bounds[1, member] = (least + delta.exp()).reshape(1, -1)[:, columns]


def _fill_events(hidden: MemberLinear, last: MemberLinear, networks: _RwmNetworks, start: int) -> None:
    """Fill the heads of contacts and termination, side by side, which read the hidden state from `start` on."""
    for values in (hidden.weight, hidden.bias, last.weight, last.bias):
        values.zero_()
    for member in range(networks.members):
        at = output = 0
        for name in ("contact", "termination"):
            head = networks.head(member, f"auxiliary_heads.#.{name}_layers")
            if head is None:
                continue
            w1, b1, w2, b2 = head
            rows, units = slice(start, start + w1.shape[1]), slice(at, at + len(b1))
            outputs = slice(output, output + len(b2))
            hidden.weight[member, rows, units] = w1.T
            hidden.bias[member, 0, units] = b1
            last.weight[member, units, outputs] = w2.T
            last.bias[member, 0, outputs] = b2
            at, output = at + len(b1), output + len(b2)
