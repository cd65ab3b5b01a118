# SPDX-License-Identifier: Apache-2.0
"""Gaits: shares of stance, pairs of legs, times that are left; feet that swing begin and end at rest."""

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.walking.controller import swing_motion
from neurodyn.walking.gait import GAITS, Gait


def test_a_trot_moves_diagonal_pairs():
    trot = GAITS["trot"]
    stands = trot.stands(trot.phase(np.linspace(0.0, trot.period, 1000, endpoint=False)))
    assert (stands[:, 0] == stands[:, 3]).all()
    assert (stands[:, 1] == stands[:, 2]).all()
    assert stands.mean(0) == pytest.approx(0.6, abs=0.01)
    assert stands.any(1).all()
    assert (trot.swing, trot.period) == (pytest.approx(0.2), pytest.approx(0.5))


@pytest.mark.parametrize(("name", "least"), [("stand", 4), ("walk", 3), ("trot", 2)])
def test_at_least_so_many_feet_stand(name, least):
    gait = GAITS[name]
    assert gait.stands(gait.phase(np.linspace(0.0, 2.0, 997))).sum(1).min() == least


def test_time_left_is_the_time_to_the_next_change():
    gait = GAITS["walk"]
    for start in (0.01, 0.33, 0.71):
        phase = gait.phase(start)
        for leg, left in enumerate(gait.left(phase)):
            before, after = (gait.stands(gait.phase(start + left + d))[leg] for d in (-1e-6, 1e-6))
            assert before == gait.stands(phase)[leg] != after


def test_bad_gaits_are_refused():
    with pytest.raises(ValueError, match="duty"):
        Gait(stance=0.3, duty=1.2, offsets=(0, 0, 0, 0))
    with pytest.raises(InputError, match="unknown gait 'gallop'; valid: stand, trot, walk"):
        GAITS.require("gallop")


def test_a_swing_begins_and_ends_where_it_should_at_rest():
    lifted, landing = np.array([0.0, 0.1, 0.02]), np.array([0.2, 0.05, 0.07])
    s = np.linspace(0.0, 1.0, 2001)
    place, velocity, acceleration = swing_motion(np.tile(lifted, (2001, 1)), landing, s, 0.2, 0.08)
    assert place[0] == pytest.approx(lifted)
    assert place[-1] == pytest.approx(landing)
    assert np.abs(velocity[[0, -1]]).max() == pytest.approx(0.0, abs=1e-9)
    assert place[:, 2].max() == pytest.approx(0.15)
    h = 0.2 / 2000
    assert np.gradient(place, h, axis=0)[5:-5] == pytest.approx(velocity[5:-5], abs=2e-3)
    assert np.gradient(velocity, h, axis=0)[5:-5] == pytest.approx(
        acceleration[5:-5], abs=1.0
    )  # its derivative jumps at the apex
