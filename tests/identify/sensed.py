# SPDX-License-Identifier: Apache-2.0
"""Logs of sensors: readings from a model in steps of a millisecond, so that delays need not be whole frames."""

from dataclasses import replace

import torch

from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.data.windows import Origin, Windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import MountedSensor, SensorModel, sensor_quantities
from neurodyn.geometry import rotation
from neurodyn.identify.fit.readings import ComparedReadings, Noise, bound_delays
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines

FINE = 1e-3
PER_FRAME = 10
F64 = torch.float64


def model(mechanism, free=(), controls=(), contact=None, *, fine=False) -> HybridDynamics:
    spec = machines.spec(mechanism, controls, FINE if fine else PER_FRAME * FINE)
    config = EngineConfig(substeps=1 if fine else PER_FRAME, contact=contact)
    parameters = select_parameters(nominal(mechanism, contact), free) if free else ()
    scene = Scene(shapes=(Plane(),)) if contact else None
    return HybridDynamics(spec, mechanism, config, parameters, scene=scene)


def streams(sensors: dict[str, Sensor], joints=()) -> tuple[Stream, ...]:
    return tuple(
        Stream(name=name, kind=s.kind, joints=tuple(joints) if s.kind == "joint_torque" else ())
        for name, s in sensors.items()
    )


def readings(found: torch.Tensor, mounted: list[MountedSensor]) -> torch.Tensor:
    """Return what is observed as it is logged: rotations as quaternions, of either sign."""
    parts, first = [], 0
    for one in mounted:
        for width in one.widths:
            own = found[..., first : first + width]
            first += width
            if width == 9:
                own = rotation.from_matrix(own.unflatten(-1, (3, 3)))
                own = own * torch.where(torch.arange(own.shape[1]) % 2 == 0, 1.0, -1.0)[:, None].double()
            parts.append(own)
    return torch.cat(parts, -1)


def log(mechanism, truth, sensors, state, control, *, controls=(), contact=None, delay=0.0, noise=0.0, joints=()):
    """Return windows of a machine with other quantities than nominal, and readings that come late.

    `truth` holds values of quantities of the machine and of its sensors; control has shape [W, T, nu].
    """
    own = nominal(mechanism, contact)
    fine = model(mechanism, [f"{n}={v}" for n, v in truth.items() if n in own], controls, contact, fine=True)
    mounted = [MountedSensor(s.name, sensors[s.name], s) for s in streams(sensors, joints)]
    placed = {n: v for n, v in truth.items() if n in sensor_quantities(mounted)}
    steps = control.repeat_interleave(PER_FRAME, 1)
    with torch.no_grad():
        path, memory = fine.simulate_remembering(state, steps, fine.physical(), fine.weights)
        observation = SensorModel(fine, mounted, (), placed)
        states = State(path.q[:, :-1].flatten(0, 1), path.qd[:, :-1].flatten(0, 1))
        worlds, frames = steps.shape[:2]
        values = fine.physical().expand(worlds * frames, -1)
        found = observation(
            states, steps.flatten(0, 1), values, torch.zeros(len(values), 0, dtype=F64), fine.weights,
            memory=None if memory is None else memory[:, :-1].flatten(0, 1),
        )  # fmt: skip
    logged = readings(found.view(worlds, frames, -1), mounted)
    for column, name in enumerate(name for s in streams(sensors, joints) for name in s.columns):
        sensor, _, rest = name.partition(".")
        logged[..., column] += placed.get(f"{sensor}.bias.{rest}", 0.0)
    late = round(delay / FINE)
    at = torch.arange(0, frames, PER_FRAME)
    measured = torch.full((worlds, control.shape[1] + 1, logged.shape[-1]), torch.nan, dtype=F64)
    measured[:, :-1] = logged[:, (at - late).clamp(0, frames - 1)]
    generator = torch.Generator().manual_seed(5)
    measured += noise * torch.randn(measured.shape, generator=generator, dtype=F64)
    return Windows(
        path.q[:, ::PER_FRAME], path.qd[:, ::PER_FRAME], control, readings=measured,
        origin=Origin.of_logs(torch.arange(worlds), [f"log {k}" for k in range(worlds)]),
    )  # fmt: skip


def residuals(mechanism, free, sensors, windows, *, controls=(), contact=None, joints=(), **options) -> Residuals:
    """Return the residuals of a machine, with its free quantities and those of its sensors."""
    quantities = nominal(mechanism, contact)
    mounted = [MountedSensor(s.name, sensors[s.name], s) for s in streams(sensors, joints)]
    placed = {n: v for n, v in sensor_quantities(mounted).items() if n not in quantities}
    specs = select_parameters({**quantities, **placed}, free)
    dynamics = model(mechanism, [spec.name for spec in specs if spec.name in quantities], controls, contact)
    mine = bound_delays([spec for spec in specs if spec.name in placed], windows.frames * PER_FRAME * FINE)
    measured = ComparedReadings.of(dynamics, sensors, streams(sensors, joints), windows, mine)
    nv = dynamics.spec.nv
    noise = Noise(torch.full((nv,), 1e-3, dtype=F64), torch.full((nv,), 1e-2, dtype=F64))
    return Residuals(dynamics, windows, noise, ResidualOptions(**options), measured=measured)


def without(windows: Windows, every: int) -> Windows:
    """Return windows with a reading in every n-th frame alone."""
    assert windows.readings is not None
    measured = windows.readings.clone()
    measured[:, torch.arange(measured.shape[1]) % every != 0] = torch.nan
    return replace(windows, readings=measured)
