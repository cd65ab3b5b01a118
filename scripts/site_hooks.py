# SPDX-License-Identifier: Apache-2.0
"""Site features beyond the pages in the repository: titles, links out of docs/, formulas, generated pages.

Pages are generated from the code and from benchmark results by `scripts/reference_pages.py`.
"""

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reference_pages import PAGES

_MADE = re.compile(r"^<!-- (commands|results) -->$", re.MULTILINE)
_TITLED = re.compile(r"^```(yaml) (\w+)$", re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill generated pages, turn the second word of a fence into a file's title, and links out of docs/ into text."""
    markdown = _MADE.sub(lambda found: PAGES[found[1]](), markdown)
    titled = _TITLED.sub(lambda found: f'```{found[1]} title="{found[2]}.{found[1]}"', markdown)
    return _OUTSIDE.sub(r"\1", titled)


def on_page_content(html: str, **_: Any) -> str:
    """Write formulas as MathML, which browsers show without external scripts."""
    return _FORMULA.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    kind = "inline" if found[1] == "span" else "block"
    return convert(unescape(found[3]), display=kind)
