# SPDX-License-Identifier: Apache-2.0
"""Every piece of a page is plain text to whoever gives it, and one file alone writes HTML for all pages."""

import re
from pathlib import Path

import neurodyn
from neurodyn.report.page import Table, cards, code, facts, figure, fold, header, heading, page, paragraph, section
from neurodyn.report.plots import TRUTH, legend_list

EVIL = "<script>alert('1')</script>"


def test_pieces_escape_what_they_are_given():
    table = Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL]])
    pieces = [
        header(EVIL, EVIL, eyebrow=EVIL), section(EVIL, "<p>kept</p>", lead=EVIL), paragraph(EVIL), heading(EVIL),
        table.html(titled=True), cards([(EVIL, EVIL, EVIL)]), facts([(EVIL, EVIL)]), code(EVIL), fold(EVIL),
        figure("<svg></svg>", EVIL), legend_list([(EVIL, TRUTH)]),
    ]  # fmt: skip
    whole = page(EVIL, pieces)
    assert "<script>" not in whole
    assert whole.count("&lt;script&gt;") == 22
    assert "<p>kept</p>" in whole


def test_titles_of_pages_are_written_in_one_place():
    source = Path(neurodyn.__file__).parent
    files = [path for kind in ("*.py", "*.html") for path in source.rglob(kind)]
    written = [path.name for path in files if re.search("<h[1-6]", path.read_text())]
    assert written == ["elements.html"]
