# SPDX-License-Identifier: Apache-2.0
"""Launches and synchronisations of GPU work, countable without a GPU.

On a GPU a launch costs 5 to 10 microseconds of host time whatever its size, and a copy to or from the host waits for
all launches before it. Both can be counted without a GPU, on tensors of device `meta`, which take the GPU branches,
hold no data, and raise when read. Warp kernels are torch operators (`geometry.launching`) and count as such.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.batch import Window

_READS = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"})
"""Operators whose result the host waits for."""

_FREE = frozenset({
    "detach", "alias", "lift_fresh", "_unsafe_view", "_reshape_alias", "empty", "new_empty", "empty_like",
    "empty_strided", "new_empty_strided",
})  # fmt: skip
"""Operators, besides views, that launch nothing."""

_MAKERS = frozenset({"tensor", "as_tensor", "new_tensor", "asarray"})
"""Functions that copy host data to a device."""


@dataclass(frozen=True)
class LaunchCount:
    """Kernel launches and synchronisations of some work.

    Attributes:
        operators: Number of launches by operator.
        copies: Transfers between host and device, and waits for a result, in order.
    """

    operators: Counter[str] = field(default_factory=Counter)
    copies: list[str] = field(default_factory=list)

    @property
    def launches(self) -> int:
        """Number of launches."""
        return self.operators.total()


class EmptyWindows:
    """Histories without data on device `meta`, for counting the launches of model roll-outs.

    A source of initial states for `neurodyn.policy.PolicyEnvironment`.
    """

    def __init__(self, spec: StateSpec) -> None:
        """Store the state specification, which sets shapes and history length."""
        self._spec = spec

    def state(self) -> dict[str, Any]:
        """Return the state of the random draws: empty."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore a state; there is none."""

    def draw(self, count: int) -> Window:
        """Return `count` histories."""
        spec, frames = self._spec, self._spec.context

        def rows(states: int, width: int) -> Tensor:
            return torch.zeros(count, states, width, device="meta")

        return Window(
            rows(frames + 1, spec.nq), rows(frames + 1, spec.nv), rows(frames, spec.nu), rows(frames + 1, spec.nx)
        )


def count_launches(work: Callable[[], object], device: str = "meta") -> LaunchCount:
    """Call a function once and count its launches on a device.

    Args:
        work: The function; call it once beforehand if it initialises anything on first use.
        device: Device type: "meta", "cpu" or "cuda".

    Raises:
        RuntimeError, NotImplementedError: The function reads a value of a tensor on device `meta`.
    """
    launched = LaunchCount()
    with _Functions(launched, device), _Operators(launched, device):
        work()
    return launched


class _Operators(TorchDispatchMode):
    """Observes every operator, Warp kernels included."""

    def __init__(self, count: LaunchCount, device: str) -> None:
        super().__init__()
        self._launches, self._device = count, device

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operator and run it."""
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if name in _READS and any(x.device.type == self._device for x in tensors):
            self._launches.copies.append(name)
        result = func(*args, **(kwargs or {}))
        tensors += [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        # Empty tensors launch nothing; host scalars are passed as launch arguments.
        filled = [x for x in tensors if x.numel() and (x.ndim or x.device.type == self._device)]
        places = {x.device.type for x in filled}
        if len(places) > 1:
            self._launches.copies.append(name)
        if self._device in places and not (func.is_view or name in _FREE):
            self._launches.operators[name] += 1
        return result


class _Functions(TorchFunctionMode):
    """Observes functions that turn host data into tensors, before any operator does."""

    def __init__(self, count: LaunchCount, device: str) -> None:
        super().__init__()
        self._launches, self._device = count, device

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record a copy from the host and call the function."""
        name = getattr(func, "__name__", "")
        result = func(*args, **(kwargs or {}))
        if self._device == "cpu":
            return result
        if name in _MAKERS and result.device.type == self._device and not isinstance(_data(args, kwargs), Tensor):
            self._launches.copies.append(name)
        if name in ("__getitem__", "__setitem__") and args[0].device.type == self._device and _has_list(args[1]):
            self._launches.copies.append(f"{name} with a list")
        return result


def _data(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Return the data from which a function or method in `_MAKERS` makes a tensor."""
    return next(iter((*args[len(args) - 1 :], *(kwargs or {}).values())), None)


def _has_list(index: Any) -> bool:
    """Return whether an index contains a list, which becomes a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list) for part in parts)
