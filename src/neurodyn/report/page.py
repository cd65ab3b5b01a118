# SPDX-License-Identifier: Apache-2.0
"""Elements of a self-contained HTML page: sections, tables, figures, cards. All text is escaped."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = Path(__file__).resolve().parent / "style.css"
_PLOTS = _STYLE.with_name("plots.js")
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>"""
_HINT = "Plots: point for values, drag to zoom in, double-click to zoom out, click a name to hide or show it."


def page(title: str, body: Iterable[str], script: str = "") -> str:
    """Return a complete page with style and scripts; pages with plots include the script for interactivity."""
    body = list(body)
    if any("data-plot=" in part for part in body):
        script = "\n".join(text for text in (script, _PLOTS.read_text(encoding="utf-8")) if text)
        body.append(f'<p class="hint" hidden>{_HINT}</p>')
    head = _HEAD.format(title=escape(title), style=_STYLE.read_text(encoding="utf-8"))
    end = ["</main>", f"<script>\n{script}</script>" if script else "", "</body>", "</html>"]
    return "\n".join(part for part in (head, *body, *end) if part) + "\n"


def header(title: str, *paragraphs: str, eyebrow: str = "") -> str:
    """Return the head of a page: title, a line above it, and paragraphs below, from plain text."""
    above = paragraph(eyebrow, "eyebrow") if eyebrow else ""
    below = "".join(paragraph(text) for text in paragraphs)
    return f"<header>{above}<h1>{escape(title)}</h1>{below}</header>"


def section(title: str, *parts: str, lead: str = "") -> str:
    """Return a section with a heading and an introduction; empty without parts."""
    content = [part for part in parts if part]
    if not content:
        return ""
    place = "".join(c if c.isalnum() else "-" for c in title.lower())
    head = [f'<section id="{place}">', f"<h2>{escape(title)}</h2>", *([paragraph(lead)] if lead else [])]
    return "\n".join([*head, *content, "</section>"])


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def heading(text: str) -> str:
    """Return a heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


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

    def html(self, *, titled: bool = False) -> str:
        """Return the table in a horizontally scrolling element; empty without rows."""

        def cell(text: str, column: int) -> str:
            if column == 0:
                return f'<th scope="row">{escape(text)}</th>'
            return f"<td{_class('strong' if column == self.strong else '')}>{escape(text)}</td>"

        if not self.rows:
            return ""
        lines = [heading(self.title)] if titled else []
        lines += ['<div class="scroll" tabindex="0"><table>', "<thead><tr>"]
        lines += [f'<th scope="col">{escape(name)}</th>' for name in self.head]
        lines += ["</tr></thead>", "<tbody>"]
        lines += ["<tr>" + "".join(cell(text, i) for i, text in enumerate(row)) + "</tr>" for row in self.rows]
        return "\n".join([*lines, "</tbody></table></div>"])


def tables(found: Iterable[Table]) -> list[str]:
    """Return tables with their titles as headings."""
    return [one.html(titled=True) for one in found]


def figure(svg: str, caption: str) -> str:
    """Return a plot with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" if svg else ""


def grid(parts: Iterable[str]) -> str:
    """Return figures side by side where they fit."""
    content = [part for part in parts if part]
    return '<div class="grid">\n' + "\n".join(content) + "\n</div>" if content else ""


def cards(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return headline figures: (figure, description, remark)."""
    items = [
        f'<div class="card"><div class="value">{escape(value)}</div><div class="what">{escape(what)}</div>'
        f'<div class="remark">{escape(remark)}</div></div>'
        for value, what, remark in entries
    ]
    return '<div class="cards">\n' + "\n".join(items) + "\n</div>"


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values."""
    items = [f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in entries if value]
    return '<dl class="facts">\n' + "\n".join(items) + "\n</dl>"


def code(text: str) -> str:
    """Return preformatted text."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def folded(summary: str, *parts: str) -> str:
    """Return content that is collapsed until clicked."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"


def data_uri(data: bytes, kind: str) -> str:
    """Return bytes as a data URI, for example of kind "image/webp"."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def moving_picture(animation: bytes, still: bytes, size: tuple[int, int], caption: str) -> str:
    """Return an animated WebP, or a still image for readers who prefer reduced motion."""
    width, height = size
    return (
        '<figure class="wide"><picture>'
        f'<source media="(prefers-reduced-motion: reduce)" srcset="{data_uri(still, "image/webp")}">'
        f'<img src="{data_uri(animation, "image/webp")}" width="{width}" height="{height}" alt="{escape(caption)}">'
        f"</picture><figcaption>{escape(caption)}</figcaption></figure>"
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
