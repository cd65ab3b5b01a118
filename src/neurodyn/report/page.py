# SPDX-License-Identifier: Apache-2.0
"""Elements of a self-contained HTML page: sections, tables, figures, cards; their HTML stands in `templates/`.

Text is escaped; `parts` are other elements.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from neurodyn.core.verdict import Finding

_LINE = 32
"""Most characters of a cell that does not wrap."""
_MANY = 4
"""Most figures of the usual size side by side."""
_FOLDER = Path(__file__).resolve().parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def place_of(title: str) -> str:
    """Return the anchor of a section."""
    return "".join(c if c.isalnum() else "-" for c in title.lower())


_TEMPLATES.filters["place"] = place_of
_ELEMENTS: Any = _TEMPLATES.get_template("elements.html").module


def element(name: str, *values: Any) -> str:
    """Return an element of `templates/elements.html` with its values."""
    return str(getattr(_ELEMENTS, name)(*values))


def render_page(title: str, template: str, /, **values: Any) -> str:
    """Return a complete page whose body is a template of `templates/` with its values."""
    return page(title, [_TEMPLATES.get_template(template).render(**values)])


def page(title: str, body: Iterable[str], script: str = "") -> str:
    """Return a complete page with style and scripts; pages with plots include the script for interactivity."""
    body = list(body)
    style, plots = (_FOLDER / "style.css").read_text("utf-8"), any("data-plot=" in part for part in body)
    if plots:
        script = "\n".join(text for text in (script, (_FOLDER / "plots.js").read_text("utf-8")) if text)
    page = _TEMPLATES.get_template("page.html")
    return page.render(title=title, style=style, body=body, plots=plots, script=script) + "\n"


def header(title: str, *paragraphs: str, eyebrow: str = "") -> str:
    """Return the head of a page: title, a line above it, and paragraphs below, from plain text."""
    return element("header", title, paragraphs, eyebrow)


def section(title: str, *parts: str, lead: str = "") -> str:
    """Return a section with a heading and an introduction; empty without parts."""
    content = list(filter(None, parts))
    return element("section", title, place_of(title), content, lead) if content else ""


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text; `kind` is a class of style.css."""
    return element("paragraph", text, kind)


def heading(text: str) -> str:
    """Return a heading inside a section."""
    return element("heading", text)


@dataclass(frozen=True)
class Table:
    """A table of plain text, for pages and for the terminal."""

    title: str
    head: Sequence[str]  # column names; the first names the rows
    rows: Sequence[Sequence[str]]
    strong: int | None = None  # index of a column in bold

    @property
    def cells(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Title, column names and rows, for experiment trackers."""
        return self.title, self.head, self.rows

    @property
    def prose(self) -> frozenset[int]:
        """Columns with texts that wrap."""
        return frozenset(k for row in self.rows for k, text in enumerate(row) if k and len(text) > _LINE)

    def html(self, *, titled: bool = False) -> str:
        """Return the table in a horizontally scrolling element; empty without rows."""
        return element("table", self, titled) if self.rows else ""


def tables(tables: Iterable[Table]) -> list[str]:
    """Return tables with their titles as headings."""
    return [one.html(titled=True) for one in tables]


def figure(svg: str, caption: str) -> str:
    """Return a plot with its caption."""
    return element("figure", svg, caption) if svg else ""


def grid(parts: Iterable[str]) -> str:
    """Return figures side by side where they fit, smaller ones if there are many."""
    content = list(filter(None, parts))
    return element("grid", content, len(content) > _MANY) if content else ""


def sentence_list(lines: Iterable[str]) -> str:
    """Return the sentences that a page begins with."""
    return element("sentences", lines)


def verdict_box(written: str, findings: Sequence[Finding] = ()) -> str:
    """Return a written verdict; findings with which it begins stand in place of its text, each with its advice."""
    grade, _, text = written.partition(":")
    text = "" if any(text.strip().startswith(one.what) for one in findings) else text.strip()
    return element("verdict", grade, text, [(one.what, one.advice) for one in findings])


@dataclass(frozen=True)
class ForestRow:
    """A quantity on an axis of a forest plot.

    Attributes:
        name: Its name.
        words: Its value in words.
        value: Its place.
        low: Lower end of its interval; None for none.
        high: Upper end.
        bounds: Bounds on the axis.
        declared: Place of its declared value; 0 is always marked.
        state: "changed", "same", "silent" (not determined) or "bound".
    """

    name: str
    words: str
    value: float
    low: float | None
    high: float | None
    bounds: tuple[float, ...]
    declared: float
    state: str


def forest(rows: Iterable[ForestRow], reach: float, *, band: bool) -> str:
    """Return quantities on a common axis from -reach to reach, with a band of ± 1 if asked; empty without any."""
    shown = list(rows)
    return element("forest", shown, reach, band) if shown else ""


def glossary(entries: Iterable[tuple[str, str]]) -> str:
    """Return what names mean, below the part that uses them."""
    return element("glossary", entries)


def cards(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return headline figures: (figure, description, remark)."""
    return element("cards", entries)


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values; entries without a value are left out."""
    return element("facts", entries)


def code(text: str) -> str:
    """Return preformatted text."""
    return element("code", text)


def fold(summary: str, *parts: str) -> str:
    """Return content that is collapsed until clicked."""
    return element("folded", summary, parts)


def legend(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return a legend shared by several plots: (name, variable of style.css, border style)."""
    return element("legend", entries)


def data_uri(data: bytes, kind: str) -> str:
    """Return bytes as a data URI, for example of kind "image/webp"."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def moving_picture(animation: bytes, still: bytes, size: tuple[int, int], caption: str) -> str:
    """Return an animated WebP, or a still image for readers who prefer reduced motion."""
    return element("moving_picture", *(data_uri(x, "image/webp") for x in (animation, still)), *size, caption)
