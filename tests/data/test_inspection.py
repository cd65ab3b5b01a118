# SPDX-License-Identifier: Apache-2.0
"""What inspection reports of a store."""

import json

import pytest

from neurodyn.data.inspection import inspect_store, plot_store

RANGES = {"q": {"slide": (0.0, 4000.0)}, "qd": {}, "control": {"slide": (-1.0, 1.0)}}


def test_counts_and_ends(store):
    found = inspect_store(store)
    assert found["transitions"] == 34
    assert found["duration_s"] == pytest.approx(0.68)
    assert found["splits"]["validation"] == {"episodes": 1, "transitions": 10}
    assert found["ends"]["out_of_range"] == {"episodes": 1, "transitions": 4}
    assert found["length"] == {"min": 4, "median": 10.0, "max": 10}
    json.dumps(found, allow_nan=False)


def test_coverage_is_counted_in_the_declared_range(store):
    by_name = {(c["what"], c["name"]): c for c in inspect_store(store, RANGES)["coordinates"]}
    slide = by_name["q", "slide"]
    assert (slide["min"], slide["max"], slide["unit"]) == (0.0, 3010.0, "m")
    # Episodes lie at 0, 1000, 2000 and 3000: four of fifty bins of 80.
    assert slide["coverage"] == pytest.approx(4 / 50)
    assert by_name["control", "slide"]["max"] == -1.0
    assert by_name["control", "slide"]["outside"] == pytest.approx(33 / 34)


def test_continuous_angles_are_wrapped(store):
    by_name = {(c["what"], c["name"]): c for c in inspect_store(store)["coordinates"]}
    assert by_name["q", "pole"]["max"] < 3.15
    assert by_name["qd", "pole"]["max"] > 3000


def test_plot_is_a_picture(store, tmp_path):
    plot_store(store, tmp_path / "x.png", RANGES)
    assert (tmp_path / "x.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [path.suffix for path in tmp_path.iterdir() if "x.png" in path.name] == [".png"]
