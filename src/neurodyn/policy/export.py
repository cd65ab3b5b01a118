# SPDX-License-Identifier: Apache-2.0
"""Policies as ONNX files: from an observation to an action, with the normalisation inside."""

from pathlib import Path

import torch
from torch import Tensor, nn

from neurodyn.nets.onnx_file import write_onnx
from neurodyn.policy.artifact import PolicyConfig, load_policy
from neurodyn.policy.network import PolicyNetwork

_EXAMPLES = 8


class PolicyFrame(nn.Module):
    """A policy with its action in both forms: as the network gives it, and scaled."""

    scale: Tensor

    def __init__(self, network: PolicyNetwork, config: PolicyConfig) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", torch.tensor(config.action_scale))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action, and the action times its scale, both [worlds, actions]."""
        action = self.network(observation)
        return action, action * self.scale


def export_policy(folder: str | Path, path: Path) -> float:
    """Write a policy as an ONNX file, after a check that ONNX Runtime computes the same from it.

    The file maps `observation` to `action` (input of the task and of later observations) and `scaled_action` (in the
    units that its metadata name).

    Args:
        folder: Folder of the policy, or "pretrained-policy:NAME".
        path: File to write.

    Returns:
        Largest difference between the file and the policy, as of `write_onnx`.

    Raises:
        InputError: There is no policy, a package is missing, or the file cannot be written.
    """
    config, network = load_policy(folder)
    # Far enough that every output varies, and within what a normalised observation is.
    examples = network.mean + network.deviation * torch.randn(_EXAMPLES, len(config.observations))
    return write_onnx(
        path,
        PolicyFrame(network, config),
        [examples],
        inputs=["observation"],
        outputs=["action", "scaled_action"],
        metadata={
            "kind": "policy",
            "task": config.task,
            "robot": config.robot,
            "dt": config.dt,
            "observation_names": list(config.observations),
            "action_names": list(config.actions),
            "action_scale": list(config.action_scale),
            "action_meaning": config.action_meaning,
        },
    )
