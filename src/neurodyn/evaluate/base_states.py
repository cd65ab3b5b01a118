# SPDX-License-Identifier: Apache-2.0
"""Estimated states of a floating base beside motion capture, where a log has both that and an IMU."""

from dataclasses import replace

import msgspec
import torch
from torch import Tensor

from neurodyn.core.artifacts import resolve_run
from neurodyn.core.config import Config, Record, read_config
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate import BaseEstimate, EstimationSettings, filter_base, sensed_runs, smooth_base
from neurodyn.evaluate.requests import EvaluationRequest
from neurodyn.evaluate.rollouts import chosen_split
from neurodyn.evaluate.run import open_along_log, training_logs
from neurodyn.geometry import rotation
from neurodyn.identify.ladder.held_out import FromPast

_SETTLED = 1.0
"""Time after which a causal filter knows how high a run began [s]."""


class WayErrors(Record, frozen=True):
    """Mean errors of one way to estimate the states of a base, over all frames of some runs.

    Attributes:
        way: "smoother" over whole runs, "filter" from the past alone, or "filter after 1 s".
        linear: Velocity of the centre of mass, in axes of the heading [m/s].
        height: Of the base's origin above the ground [m].
        tilt: Roll and pitch [rad].
        angular: Angular velocity, in axes of the heading [rad/s].
        linear_share, height_share: Root mean square of errors over their own standard deviations: 1 if these hold.
    """

    way: str
    linear: float
    height: float
    tilt: float
    angular: float
    linear_share: float
    height_share: float


class EstimatedStates(Record, frozen=True):
    """Estimated states of a base beside those that were measured.

    Attributes:
        run: The model.
        data: The log.
        episodes: Episodes compared.
        frames: Frames compared.
        ways: Errors of each way.
    """

    run: str
    data: str
    episodes: int
    frames: int
    ways: tuple[WayErrors, ...]


def estimated_states(request: EvaluationRequest) -> EstimatedStates:
    """Estimate the states of the base in a log, and compare them with those that it measured.

    Raises:
        InputError: The log has no IMU or no measured base, or the model has no contacts or no floating base.
    """
    run = str(request.run)
    data = training_logs(run) if request.data is None else (request.data,)
    model, _, _, store = open_along_log(run, data)
    model = model.dynamics if isinstance(model, FromPast) else model
    where = ", ".join(data)
    if store.header.base != "measured":
        raise InputError(f"{where}: its base is {store.header.base}; valid: with --states, a log with motion capture")
    split = chosen_split(store, request.split)
    chosen = _with_sensors_of(run, store.select(store.episodes(split)))
    runs, settings = sensed_runs(chosen, model, EstimationSettings())
    smoothed = smooth_base(model, chosen, settings)
    filtered = filter_base(model, runs, settings)
    late = round(_SETTLED / model.spec.dt)
    ways = (
        _errors("smoother", smoothed, chosen, model, 0), _errors("filter", filtered, chosen, model, 0),
        _errors(f"filter after {_SETTLED:g} s", filtered, chosen, model, late),
    )  # fmt: skip
    return EstimatedStates(
        run=run, data=where, episodes=len(runs), frames=sum(one.frames for one in runs),
        ways=tuple(one for one in ways if one is not None),
    )  # fmt: skip


class _DeclaredSensors(Config, frozen=True, forbid_unknown_fields=False):
    sensors: dict[str, Sensor] = msgspec.field(default_factory=dict)


class _AdaptedWith(Config, frozen=True, forbid_unknown_fields=False):
    settings: _DeclaredSensors = msgspec.field(default_factory=_DeclaredSensors)


def _with_sensors_of(run: str, store: Store) -> Store:
    """Return a log whose sensors sit where the settings of a run say, if they do."""
    path = resolve_run(run) / "config.yaml"
    sensors = read_config(path, _AdaptedWith).settings.sensors if path.is_file() else {}
    header = msgspec.structs.replace(store.header, sensors=store.header.sensors | sensors)
    return replace(store, header=header)


def _errors(way: str, estimate: BaseEstimate, store: Store, model: Dynamics, first: int) -> WayErrors | None:
    """Return mean errors from a frame of each run on; None if no run is longer."""
    parts: list[Tensor] = []
    for episode, run in enumerate(estimate):
        q, qd, _ = store.episode(episode)
        position, quaternion, linear, angular = (
            torch.tensor(x, dtype=torch.float64) for x in (q[:, :3], q[:, 3:7], qd[:, :3], qd[:, 3:6])
        )
        off = level(run.quaternion, run.linear) - level(quaternion, linear)
        height = run.position[:, 2] - position[:, 2]
        spin = level(run.quaternion, run.angular) - level(quaternion, angular)
        down, true_down = (_down(x) for x in (run.quaternion, quaternion))
        spread = torch.stack([run.deviation(f"linear.{x}") for x in "xyz"], -1)
        columns = [
            off.norm(dim=1), height.abs(), torch.linalg.cross(down, true_down).norm(dim=1), spin.norm(dim=1),
            off.square().sum(1) / spread.square().sum(1), (height / run.deviation("height")).square(),
        ]  # fmt: skip
        parts.append(torch.stack(columns, 1)[first:])
    rows = torch.cat(parts)
    if not len(rows):
        return None
    linear, height, tilt, angular, linear_share, height_share = rows.mean(0).tolist()
    return WayErrors(
        way=way, linear=linear, height=height, tilt=tilt, angular=angular, linear_share=linear_share**0.5,
        height_share=height_share**0.5,
    )  # fmt: skip


def level(quaternion: Tensor, vector: Tensor) -> Tensor:
    """Return vectors in axes of the heading of rotations, shapes [n, 4] and [n, 3]."""
    ahead = rotation.matrix(quaternion)
    angle = -torch.atan2(ahead[:, 1, 0], ahead[:, 0, 0])
    return rotation.rotate(rotation.exponential(torch.stack([0 * angle, 0 * angle, angle], -1)), vector)


def _down(quaternion: Tensor) -> Tensor:
    down = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64).expand(len(quaternion), 3)
    return rotation.rotate(rotation.conjugate(quaternion), down)
