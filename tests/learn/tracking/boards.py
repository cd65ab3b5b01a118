# SPDX-License-Identifier: Apache-2.0
"""What TensorBoard shows as texts."""

from pathlib import Path


def texts(run: Path) -> dict[str, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for path in (run / "tensorboard").iterdir():
        events = EventAccumulator(str(path))
        events.Reload()
        for tag in events.Tags()["tensors"]:
            name = tag.removesuffix("/text_summary")
            found[name] = events.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
    return found
