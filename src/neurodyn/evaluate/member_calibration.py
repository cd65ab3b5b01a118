# SPDX-License-Identifier: Apache-2.0
"""Calibration of neural dynamics with members: whether they know how large their errors are."""

from dataclasses import replace

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.interface import Dynamics, State, Trajectory, present_state
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.evaluate.calibration import FACTORS, coverage_at, drawn_out, ranks_at
from neurodyn.evaluate.engine import Batch
from neurodyn.evaluate.forecasts import MemberErrors
from neurodyn.evaluate.records import MemberCalibration, OutOfDistribution

_FRAMES = (1, 10, 50, 100, 200)


def member_calibration(
    model: Dynamics, path: Trajectory, truth: Trajectory, starts: Batch
) -> MemberCalibration | UnsetType:
    """Return the calibration of roll-outs; UNSET of a model that does not say how uncertain it is.

    Args:
        model: The model.
        path: Its roll-outs.
        truth: What became of the same starts.
        starts: The first of the starts, with what drives them.
    """
    if path.epistemic is None or not isinstance(model, NeuralDynamics):
        return UNSET
    found, frames = MemberErrors(model, path, truth), path.epistemic.shape[1]
    marks = sorted({mark for mark in _FRAMES if mark <= frames} | {frames})
    return MemberCalibration(
        members=model.members,
        coverage={str(mark): coverage_at(found, mark) for mark in marks},
        epistemic={str(mark): ranks_at(found, mark) for mark in marks},
        out_of_distribution=_out_of_distribution(model, truth, starts),
    )


@torch.no_grad()
def _out_of_distribution(model: NeuralDynamics, truth: Trajectory, starts: Batch) -> OutOfDistribution:
    """Return the deviation after one frame where velocities and joints lie further from their mean than they do.

    States are those half way along the true paths, where the robot moves as it does, not as it was set down.
    """
    count, frame = present_state(starts.past).worlds, (truth.q.shape[1] - 1) // 2
    state, control = State(truth.q[:count, frame], truth.qd[:count, frame]), starts.drive.at(frame)

    def epistemic(factor: float) -> Tensor:
        drawn = _drawn_out(model.spec, state, factor)
        _, step = model.step_(model.begin(drawn, starts.environment), drawn, control)
        assert step.epistemic is not None  # all members see all worlds
        values = (step.epistemic / model.state_scale).mean(-1)
        return values[values.isfinite()]

    return drawn_out(epistemic(1.0), {factor: epistemic(factor) for factor in FACTORS})


def _drawn_out(spec: StateSpec, state: State, factor: float) -> State:
    """Return states drawn out from their mean; a base and ball joints stay where they are, but for their velocities."""
    q, qd, joints = state.q.clone(), state.qd, [spec.q_names.index(joint.name) for joint in spec.joints if joint.scalar]
    centre = q[:, joints].mean(0)
    q[:, joints] = centre + factor * (q[:, joints] - centre)
    return replace(state, q=q, qd=qd.mean(0) + factor * (qd - qd.mean(0)))
