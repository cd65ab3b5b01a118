# SPDX-License-Identifier: Apache-2.0
"""Actuator networks as plain data."""

import msgspec
import pytest

from neurodyn.core.description.drive_network import DriveNetwork

NETWORK = DriveNetwork(
    network="mlp", joints=("knee",), signals=("position_error", "velocity"), scales=(10.0, 0.1), effort_scale=20.0,
    history=(0.0, 0.01, 0.02), period=0.005,
)  # fmt: skip


def test_ages_are_counted_in_periods():
    assert NETWORK.steps == (0, 2, 4)
    assert NETWORK.inputs == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"signals": ()}, "signals is"),
        ({"scales": (1.0,)}, "a finite number other than 0 for each signal"),
        ({"history": (0.0, 0.007)}, "multiples of `period`"),
        ({"history": (0.01,)}, "0 and then rising"),
        ({"period": 0.0}, "period is 0.0"),
        ({"network": "gru"}, "one width and"),
    ],
)
def test_what_cannot_be_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        msgspec.structs.replace(NETWORK, **change)
