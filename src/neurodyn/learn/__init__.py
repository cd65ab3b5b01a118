# SPDX-License-Identifier: Apache-2.0
"""Training: one loop, its optimisers, run folders and metrics, and the specifics of each kind of dynamics."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.learn.devices import joined
    from neurodyn.learn.fit_windows import FitWindows, fit_windows
    from neurodyn.learn.hybrid import split_weights
    from neurodyn.learn.loop import Callback
    from neurodyn.learn.manifest import RunRecord
    from neurodyn.learn.metrics import read_metrics, show_results
    from neurodyn.learn.neural.settings import Settings, load_settings
    from neurodyn.learn.optimiser import OPTIMISERS, Method
    from neurodyn.learn.plan import TrainState, with_budget
    from neurodyn.learn.tracking.tracker import TRACKERS, Opening, Tracker
    from neurodyn.learn.training import finetune, train

__all__ = [
    "OPTIMISERS", "TRACKERS", "Callback", "FitWindows", "Method", "Opening", "RunRecord", "Settings", "Tracker",
    "TrainState", "finetune", "fit_windows", "joined", "load_settings", "read_metrics", "show_results", "split_weights",
    "train", "with_budget",
]  # fmt: skip
