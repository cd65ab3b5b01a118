# SPDX-License-Identifier: Apache-2.0
"""Messages about names that are not there."""

import pytest

from neurodyn.core.errors import unknown


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
