# SPDX-License-Identifier: Apache-2.0
"""Compilations are announced, where they take long and are not cached."""

import warnings

import pytest

from neurodyn.core.errors import Notice
from neurodyn.geometry.launching import start_warp
from neurodyn.multibody.trace import native


def test_a_long_compilation_says_how_long_and_a_cached_or_short_one_nothing(monkeypatch):
    start_warp()
    kernel = native.block_kernel("double unlikely_and_new = 0.25; (void)unlikely_and_new;", 4, cuda=False)
    with pytest.warns(Notice, match=r"compiling a model for this machine, once: 30 s on a free core"):
        native.announce(kernel, 100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        native.announce(kernel, 1_000)
        monkeypatch.setattr(native, "_in_cache", lambda kernel: True)
        native.announce(kernel, 200_000)


def test_what_was_compiled_is_found_by_its_code():
    start_warp()
    text = "double found_by_its_code = 0.5; (void)found_by_its_code;"
    texts = [text, text.replace("0.5", "0.25")]
    native.load_side_by_side(*(native.block_kernel(one, 4, cuda=False) for one in texts))
    assert all(native._in_cache(native.block_kernel(one, 4, cuda=False)) for one in texts)
    assert not native._in_cache(native.block_kernel(text.replace("0.5", "0.125"), 4, cuda=False))
