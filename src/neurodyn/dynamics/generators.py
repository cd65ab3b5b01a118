# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers of a device, from which tasks draw."""

import torch


class _Elsewhere(torch.Generator):
    """Stands in on devices without generators of their own (`meta`), whose tensors hold no numbers."""

    device = torch.device("meta")


def device_generator(device: torch.device, seed: int) -> torch.Generator:
    """Return a generator whose `device` is the one given, seeded."""
    if device.type == "meta":
        return _Elsewhere()
    return torch.Generator(device).manual_seed(seed)
