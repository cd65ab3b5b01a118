# SPDX-License-Identifier: Apache-2.0
"""The campaign in its short form: no failure of any kind (docs/guard.md)."""

import json
import os
import subprocess
import sys

import pytest

from tests.plant import repository


def test_the_short_campaign_has_no_failures(tmp_path):
    pytest.importorskip("newton")
    script, out = repository() / "benchmarks" / "campaign.py", tmp_path / "campaign.json"
    done = subprocess.run(
        [sys.executable, str(script), "--short", "--json", str(out)], capture_output=True, text=True, check=False,
        timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())["figures"]
    assert {name: value for name, value in figures.items() if name.endswith("_failed") and value} == {}
    assert figures["poisoned_runs"] == 35
