# SPDX-License-Identifier: Apache-2.0
"""Replays of a model's C code: compiled as it stands, and stepped along a log."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
import torch

from neurodyn.dynamics.batch import Trajectory
from neurodyn.interop.c_code.source import CUnit
from neurodyn.interop.replay_scene import ReplayScene, compile_library

_SPARE = 64  # bytes after a state, for padding


def play_code(unit: CUnit, name: str, source: str, header: str, scene: ReplayScene) -> Trajectory:
    """Compile NAME.c, and roll its function `step` out along windows after the commands of their past."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.h").write_text(header, encoding="utf-8")
        code = Path(folder) / f"{name}.c"
        code.write_text(source, encoding="utf-8")
        return _Stepper(ctypes.CDLL(str(compile_library(code))), unit, name).play(scene)


class _Stepper:
    def __init__(self, library: ctypes.CDLL, unit: CUnit, name: str) -> None:
        self._one = next(one for one in unit.functions if one.name == "step")
        self._call = getattr(library, f"{name}_step")
        self._reset = getattr(library, f"{name}_reset") if unit.memory else None
        self._state = ctypes.create_string_buffer(8 * sum(array.width for array in unit.memory) + _SPARE)
        self._arrays = {a.name: np.zeros(a.width) for a in (*self._one.given, *self._one.results)}

    def play(self, scene: ReplayScene) -> Trajectory:
        windows = scene.windows
        q, qd = (x.double().numpy().copy() for x in (windows.q, windows.qd))
        for window in range(windows.count):
            if self._reset is not None:
                self._reset(self._state)
            if (past := windows.past) is not None:
                for frame in range(past.frames):
                    self._step(
                        past.q[window, frame].numpy(), past.qd[window, frame].numpy(), past.control[window, frame]
                    )
            for frame in range(windows.frames):
                q[window, frame + 1], qd[window, frame + 1] = self._step(
                    q[window, frame], qd[window, frame], windows.control[window, frame]
                )
        return Trajectory(torch.from_numpy(q), torch.from_numpy(qd))

    def _step(self, q: np.ndarray, qd: np.ndarray, control: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        arrays = self._arrays
        arrays["q"][:], arrays["qd"][:], arrays["control"][:] = q, qd, control.numpy()
        named = [array.name for array in (*self._one.given, *self._one.results) if array.width]
        pointers = [arrays[name].ctypes.data_as(ctypes.c_void_p) for name in named]
        self._call(*([self._state] if self._one.memory else []), *pointers)
        return arrays["q_next"], arrays["qd_next"]
