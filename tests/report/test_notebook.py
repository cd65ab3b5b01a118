# SPDX-License-Identifier: Apache-2.0
"""The bar of notebooks is one output that changes, and lines elsewhere."""

import pytest

from neurodyn.report import NotebookBar, notebook


def test_outside_of_notebooks_it_prints_a_line_at_each_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notebook, "_SECONDS", 0.0)
    with NotebookBar("work") as bar:
        for k in range(101):
            bar.update(k / 100, f"step {k}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[0] == "work: 0%  step 0"
    assert lines[-1] == "work: 100%  step 100"


def test_in_a_notebook_one_output_is_replaced_and_text_is_escaped(monkeypatch: pytest.MonkeyPatch):
    display = pytest.importorskip("IPython.display")
    shown, replaced = [], []

    class Handle:
        def update(self, content, raw):
            replaced.append(content)

    def show(content, raw, display_id):
        shown.append(content)
        return Handle()

    monkeypatch.setattr(notebook, "_in_notebook", lambda: True)
    monkeypatch.setattr(notebook, "_SECONDS", 0.0)
    monkeypatch.setattr(display, "display", show)

    def work():
        with NotebookBar("<b>") as bar:
            bar.update(0.25, "a")
            bar.update(0.5, "<script>")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        work()
    assert len(shown) == 1
    assert "&lt;b&gt;" in shown[0]["text/html"]
    assert "left" in shown[0]["text/html"]
    assert [content["text/plain"] for content in replaced] == ["<b>: 50%  <script>"] * 2
    assert "<script>" not in replaced[0]["text/html"]


def test_what_never_began_shows_nothing(capsys: pytest.CaptureFixture[str]):
    with NotebookBar("work"):
        pass
    assert capsys.readouterr() == ("", "")
