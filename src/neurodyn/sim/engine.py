# SPDX-License-Identifier: Apache-2.0
"""Imports Newton and MuJoCo, quietly, with a clear error if they are not installed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from neurodyn.core.description.spec import COORDINATES, JointKind
from neurodyn.core.extras import import_extra, missing_extra
from neurodyn.core.workers import FORWARD_ONLY
from neurodyn.geometry.launching import start_warp
from neurodyn.sim.articulations import with_short


def import_newton(what: str = "simulation in Newton") -> ModuleType:
    """Import Newton without Warp's banner (set NEURODYN_VERBOSE to see it); refuse if it is not installed.

    `what` is the work that needs it.
    """
    if sys.modules.get("newton") is not None:
        return sys.modules["newton"]
    try:
        start_warp()
        with _forward_only():
            import newton
    except ImportError as error:
        raise missing_extra(what, "newton", "newton", why=error) from None
    return newton


@cache
def solver_class(name: str) -> Any:
    """Return one of Newton's solver classes; this imports its kernels."""
    newton = import_newton()
    with _forward_only():
        return getattr(newton.solvers, name)


@contextmanager
def _forward_only() -> Iterator[None]:
    """Compile kernels of modules imported within this context without adjoints, which takes a third of the time.

    Applies where `core.workers.FORWARD_ONLY` is set: nothing there differentiates through Newton.
    """
    import warp as wp

    before = wp.config.enable_backward
    wp.config.enable_backward = before and not os.environ.get(FORWARD_ONLY)
    try:
        yield
    finally:
        wp.config.enable_backward = before


def joint_kinds(newton: ModuleType) -> dict[int, JointKind]:
    """Return the joint kind of each supported joint type of Newton."""
    types = newton.JointType
    return {int(getattr(types, kind.upper())): kind for kind in COORDINATES if hasattr(types, kind.upper())}


def shape_labels(model: Any, shape: int, body: int) -> set[str]:
    """Return the labels of a shape and of its body (-1: the world), with and without prefixes."""
    return with_short(model.shape_label[shape], *([model.body_label[body]] if body >= 0 else []))


def collides(model: Any) -> np.ndarray:
    """Return which shapes of a model take part in contacts, shape [shapes]."""
    return (model.shape_flags.numpy() & int(import_newton().ShapeFlags.COLLIDE_SHAPES)) != 0


def import_mujoco() -> Any:
    """Import MuJoCo, which has no types; refuse if it is not installed."""
    if sys.modules.get("mujoco") is not None:
        return sys.modules["mujoco"]
    return import_extra("mujoco", "a robot of an MJCF or a URDF", "mujoco")


@contextmanager
def collect_warnings(warnings: list[str] | None = None) -> Iterator[None]:
    """Collect MuJoCo's warnings, which otherwise go to the terminal and to a log file in the working directory."""
    mujoco = import_mujoco()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(([] if warnings is None else warnings).append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
