# SPDX-License-Identifier: Apache-2.0
"""Policies that are kept along the way: of different quality, and each what the training was at that moment."""

import msgspec
import pytest
import torch

pytest.importorskip("rsl_rl")

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.policy.settings import PolicySettings
from neurodyn.policy.training import train as train_policy
from tests.policy.test_train import TINY, here
from tests.policy.worlds import Hold


def test_every_second_policy_is_kept(tmp_path):
    settings = msgspec.structs.replace(TINY, keep_every=2, evaluations=0)
    train_policy(Hold(), here(), tmp_path / "long", settings)
    kept = sorted(path.name for path in (tmp_path / "long" / "kept").iterdir())
    assert kept == ["00002", "00004"]
    # A training that ends there ends with the same policy.
    train_policy(Hold(), here(), tmp_path / "short", msgspec.structs.replace(settings, iterations=2))
    early, late, short = (
        artifacts.read_tensors(tmp_path / name / "policy.safetensors")
        for name in ("long/kept/00002", "long/kept/00004", "short")
    )
    assert all(torch.equal(early[name], short[name]) for name in short)
    assert any(not torch.equal(early[name], late[name]) for name in late)


def test_a_bad_interval_is_refused():
    with pytest.raises((InputError, ValueError), match="keep_every is 0; valid: a whole number of at least 1"):
        PolicySettings(keep_every=0)
