# SPDX-License-Identifier: Apache-2.0
"""The trial of a drafted simulator passes sound robots, and says what is wrong with others."""

import msgspec

from neurodyn.robots.sections import SimulatorConfig
from neurodyn.sim.declaration.trial import WORST_ERROR, run_trial


def test_a_sound_simulator_passes_and_a_coarse_one_does_not(cartpole):
    trial = run_trial(cartpole)
    assert trial.passed
    assert trial.substeps == cartpole.simulator.substeps
    assert (trial.finite, trial.outside) == (1.0, 0.0)
    assert trial.reach.shape == (2, 2)
    assert (trial.reach[:, 0] <= trial.reach[:, 1]).all()
    coarse = msgspec.structs.replace(cartpole, dt=0.5, simulator=SimulatorConfig(solver="mujoco-c", substeps=1))
    failed = run_trial(coarse)
    assert not failed.passed
    assert failed.error > WORST_ERROR or failed.finite < 1.0
    assert "beside half the step" in failed.text
