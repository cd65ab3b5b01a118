# SPDX-License-Identifier: Apache-2.0
"""docs/settings.md says what the structs say."""

import importlib.util
from typing import Any

from neurodyn.core.config import Config
from tests.plant import repository


class Base(Config, frozen=True):
    """Base."""

    size: float
    """Size [m]; more of it."""
    shape: str = "round"
    """Shape of it."""


class Own(Base, frozen=True):
    """Own."""

    shape: str = "square"
    on: bool = True
    """Whether it is on (always), which few know."""
    near: tuple[float, ...] = (0.1, 2.0)
    """Bounds of the distance."""


def script() -> Any:
    spec = importlib.util.spec_from_file_location("settings_page", repository() / "scripts" / "settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    page: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    return page


def test_a_table_lists_own_fields_and_changed_defaults():
    settings_table = script().settings_table
    head = "|key|default|meaning|\n|---|---|---|\n"
    assert settings_table(Base) == f"{head}|`size`||Size [m]|\n|`shape`|round|Shape of it|"
    rows = "|`shape`|square||\n|`on`|true|It is on|\n|`near`|[0.1,2]|Bounds of the distance|"
    assert settings_table(Own) == head + rows


def test_the_page_is_that_of_the_structs_and_short():
    page = script()
    assert page.PAGE.read_text("utf-8") == page.text(), "run python scripts/settings_page.py"
    assert len(page.text().split()) <= 1850
