# SPDX-License-Identifier: Apache-2.0
"""What the site does beyond the pages as they read in a repository: titles of files, links out of docs/, formulas."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_TITLED = re.compile(r"^```(yaml) (\w+)$", re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn the second word of a fence into the title of a file, and links out of docs/ into their text."""
    titled = _TITLED.sub(lambda found: f'```{found[1]} title="{found[2]}.{found[1]}"', markdown)
    return _OUTSIDE.sub(r"\1", titled)


def on_page_content(html: str, **_: Any) -> str:
    """Write formulas as MathML, which browsers show without a script from elsewhere."""
    return _FORMULA.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    kind = "inline" if found[1] == "span" else "block"
    return convert(unescape(found[3]), display=kind)
