# SPDX-License-Identifier: Apache-2.0
"""Reading pages back: elements that are closed as they were opened, ids, links, and text."""

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "source", "input", "br", "hr", "link"}


class Page(HTMLParser):
    """A parsed page; raises AssertionError where elements do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in {"src", "href", "srcset", "xlink:href", "data", "poster", "action"}:
                self.links.append(value)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        assert self._open, tag
        assert self._open[-1] == tag, (tag, self._open)
        self._open.pop()

    def handle_data(self, data):
        if not self._open or self._open[-1] not in {"style", "script"}:
            self.text += data


def check_self_contained(html: str) -> Page:
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link.startswith("data:") or (link.startswith("#") and link[1:] in page.ids), link[:80]
    assert not re.search(r"(https?|file|ftp):|url\((?!#)|@import|src=\"//", html)
    for name in re.findall(r"url\(#([\w-]+)\)", html):
        assert name in page.ids
    return page
