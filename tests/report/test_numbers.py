# SPDX-License-Identifier: Apache-2.0
"""Numbers as pages print them."""

import pytest

from neurodyn.report.numbers import MISSING, relative_size


@pytest.mark.parametrize(
    ("factor", "words"),
    [(44.2, "44× smaller"), (1.0, "1.0× smaller"), (0.58, "1.7× larger"), (0.01, "100× larger"),
     (None, f"{MISSING} smaller")],
)  # fmt: skip
def test_a_worse_model_is_not_called_smaller(factor, words):
    assert relative_size(factor) == words
