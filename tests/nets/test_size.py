# SPDX-License-Identifier: Apache-2.0
"""Networks of absurd size are refused before they are built; the limit can be set."""

import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.nets.networks import NetConfig
from neurodyn.policy.settings import NetworkSettings


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (NetConfig, {"width": 10**6}),
        (NetConfig, {"depth": 10**9}),
        (EnsembleConfig, {"members": 10**6}),
        (NetworkSettings, {"hidden": [10**5, 10**5]}),
    ],
)
def test_absurd_sizes_are_refused(kind: type, sizes: dict, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match=r"has about [\d,]+ weights; valid: at most 200,000,000"):
        from_dict(sizes, kind)
    monkeypatch.setenv("NEURODYN_MOST_WEIGHTS", str(10**15))
    from_dict(sizes, kind)
