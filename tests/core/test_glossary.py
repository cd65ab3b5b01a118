# SPDX-License-Identifier: Apache-2.0
"""Names that results use are explained, each once."""

from neurodyn.core.glossary import TERMS, explain, explanations


def test_known_names_are_explained_once():
    assert explanations(["declared", "wrist", "declared"]) == [("declared", TERMS["declared"])]


def test_a_caveat_is_followed_by_its_meaning():
    assert explain("compiled contacts, network silent").startswith("compiled contacts, network silent: validation")
    assert explain("compiled contacts") == "compiled contacts"
