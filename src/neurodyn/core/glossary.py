# SPDX-License-Identifier: Apache-2.0
"""Names that results use, in a few words for those who meet them for the first time."""

from collections.abc import Iterable

TERMS = {
    "declared": "the robot's file as it is",
    "identified": "the same with the quantities that were found",
    "identified + networks": "with networks for what the quantities leave of the joint torques",
    "persistence": "nothing moves: each coordinate stays where it is",
    "constant velocity": "each coordinate goes on at its speed",
    "plain network (GRU)": "a recurrent network without any mechanics, trained beside on the same logs",
    "network silent": "validation kept the compiled base alone, and its network adds nothing",
    "analytic": "the robot's simulator, as declared",
    "random": "uniformly random actions, as a policy that has learned nothing",
    "still": "zero actions, as a policy",
    "swing": "sines of 1 to 3 Hz as actions, as a policy",
}
"""What each name means."""


def explanations(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return those of the names that need it with their meaning, each once."""
    return [(name, TERMS[name]) for name in dict.fromkeys(names) if name in TERMS]


def explain(text: str) -> str:
    """Return a remark such as "compiled contacts, network silent" with the meaning of its last part."""
    known = [meaning for name, meaning in explanations(text.split(", "))]
    return f"{text}: {'; '.join(known)}" if known else text
