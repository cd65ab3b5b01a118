# SPDX-License-Identifier: Apache-2.0
"""Histories and states of dynamics as plain data, to go on with after a stop, whatever kind of dynamics made them."""

from typing import Any

from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.capture import parts_of, with_parts

_OWN = "__own__"
"""Stands for what holds no numbers: whoever goes on has made it anew."""


def saved_tree(tree: Any) -> Any:
    """Return what changes of a tree of dataclasses, tuples, lists and dicts: tensors, numbers, texts and None.

    The result is made of dicts by name or number, and can be written by `core.artifacts.write_tree`.
    """
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    parts = parts_of(tree)
    saved = {} if parts is None else {str(name): saved_tree(part) for name, part in parts}
    return saved if any(not _is_own(part) for part in saved.values()) else _OWN


def restored_tree(template: Any, saved: Any) -> Any:
    """Return a tree of the form of a fresh one with what `saved_tree` gave in it.

    Raises:
        InputError: It is of another form.
    """
    if isinstance(saved, Tensor):
        return saved.to(template.device) if isinstance(template, Tensor) else saved
    if _is_own(saved):
        return template
    if not isinstance(saved, dict):
        return saved
    parts = parts_of(template)
    if parts is None or {str(name) for name, _ in parts} != saved.keys():
        raise InputError(
            f"saved worlds hold {', '.join(sorted(saved))}, which is not what {type(template).__name__} holds"
        )
    return with_parts(template, {name: restored_tree(part, saved[str(name)]) for name, part in parts})


def _is_own(saved: Any) -> bool:
    return isinstance(saved, str) and saved == _OWN
