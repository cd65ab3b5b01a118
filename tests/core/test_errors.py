# SPDX-License-Identifier: Apache-2.0
"""Messages about names that are not there."""

import pytest

from neurodyn.core.errors import among, unknown, unreadable


@pytest.mark.parametrize(
    ("name", "also", "message"),
    [
        ("evalute", "", "unknown verb 'evalute' (did you mean 'evaluate'?); valid: evaluate, train"),
        ("xyz", "", "unknown verb 'xyz'; valid: evaluate, train"),
        ("evalute", "a file", "unknown verb 'evalute' (did you mean 'evaluate'?); valid: evaluate, train, or a file"),
        ("map.yaml", "a file", "map.yaml: no such file; valid for a verb: evaluate, train, or a file"),
        ("maps/one", "a file", "maps/one: no such file; valid for a verb: evaluate, train, or a file"),
        ("map.yaml", "", "unknown verb 'map.yaml'; valid: evaluate, train"),
    ],
)
def test_a_missing_file_is_called_one_and_a_typing_error_gets_a_suggestion(name, also, message):
    assert str(unknown("verb", name, ["train", "evaluate"], also)) == message


def test_a_missing_file_suggests_the_one_beside_it(tmp_path):
    (tmp_path / "robot.yaml").write_text("")
    (tmp_path / "robots").mkdir()
    assert str(unreadable(tmp_path / "robt.yaml", FileNotFoundError(), "a file")).startswith(
        f"{tmp_path / 'robt.yaml'}: no such file (did you mean 'robot.yaml'?)"
    )
    assert "did you mean" not in str(unreadable(tmp_path / "gone" / "robot.yaml", FileNotFoundError(), "a file"))


def test_names_that_are_equally_near_are_both_suggested():
    assert among("dfki-z9", ["dfki-c1", "dfki-c0", "cube"]) == (
        " (did you mean 'dfki-c1' or 'dfki-c0'?); valid: cube, dfki-c0, dfki-c1"
    )
    assert among("xyz", ["one", "two"]) == "; valid: one, two"
