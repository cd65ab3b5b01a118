# SPDX-License-Identifier: Apache-2.0
"""`neurodyn completion`: what shells offer at TAB: verbs, flags, robots, tasks, runs and other names."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from neurodyn.cli.terminal.signature import Signature, VerbParameter, signature_of, split
from neurodyn.core.registry import Registry

_DEPTH = 3
"""Folders below the present one in which runs are looked for."""

_BASH = """\
_neurodyn() {
    local line="${COMP_LINE:0:COMP_POINT}" word prefix=
    local -a words
    read -r -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word="${words[-1]}"
    # Bash takes what follows a colon for a word of its own.
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && prefix="${word%"${word##*:}"}"
    local IFS=$'\\n'
    COMPREPLY=($(neurodyn --complete "${words[@]:1}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -o default -F _neurodyn neurodyn
"""
_ZSH = """\
#compdef neurodyn
_neurodyn() {
    local -a found
    found=("${(@f)$(neurodyn --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _neurodyn neurodyn
"""
_FISH = """\
complete -c neurodyn -a '(neurodyn --complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print what teaches a shell to complete verbs, flags, robots, tasks, runs and pretrained models at TAB.

    Args:
        shell: bash, zsh or fish.

    Example:
        echo 'source <(neurodyn completion bash)' >> ~/.bashrc
        echo 'source <(neurodyn completion zsh)' >> ~/.zshrc
        neurodyn completion fish > ~/.config/fish/completions/neurodyn.fish
    """
    print(_SCRIPTS[shell], end="")


def candidates(verbs: Registry, words: Sequence[str]) -> list[str]:
    """Return what the last of some words may become; nothing where it is a file's name or free text.

    Args:
        verbs: The verbs.
        words: What was typed behind `neurodyn`; the last may be empty.
    """
    *before, last = words or [""]
    if not before:
        return _beginning([*verbs, "--help", "--version"], last)
    if before[0] not in verbs:
        return []
    called = verbs[before[0]].load()
    if isinstance(called, Registry):
        return candidates(called, words[1:])
    signature = signature_of(called)
    return _beginning(_offered(signature, before[1:], last), last)


def _offered(signature: Signature, before: Sequence[str], last: str) -> Iterable[str]:
    given = split(signature, before)
    if last.startswith("-"):
        repeated = [name for name, one in signature.flags.items() if one.count is None]
        return [name for name in (*signature.flags, "--help") if name not in given.flags or name in repeated]
    if given.open is not None:
        return _values(given.open)
    arguments = [one for one in signature.parameters if one.positional]
    return _values(arguments[0]) if arguments and (arguments[0].count is None or not given.words) else ()


def _beginning(names: Iterable[str], start: str) -> list[str]:
    return sorted({name for name in names if name.startswith(start)})


def _values(one: VerbParameter) -> Iterable[str]:
    if one.choices:
        return one.choices
    return _COMPLETERS[one.value]() if one.value in _COMPLETERS else ()


def _robots() -> list[str]:
    from neurodyn.robots import names

    return names()


def _tasks() -> Iterable[str]:
    from neurodyn.tasks import names

    return names()


def _runs() -> list[str]:
    from neurodyn.core.artifacts import PRETRAINED, pretrained_names

    return [*(PRETRAINED + name for name in pretrained_names()), *_folders("model/spec.json")]


def _policies() -> list[str]:
    from neurodyn.core.artifacts import PRETRAINED_POLICY, pretrained_policy_names

    names = [PRETRAINED_POLICY + name for name in pretrained_policy_names()]
    return [*names, *_folders("policy.safetensors")]


def _folders(holding: str) -> list[str]:
    """Return folders near the present one that hold a file."""
    found = []
    for folder, below, _ in os.walk("."):
        path = Path(folder)
        if (path / holding).is_file():
            found.append(path.as_posix())
        deep = len(path.parts) >= _DEPTH
        below[:] = [] if deep else [name for name in below if not name.startswith(".") and name != "state"]
    return found


_COMPLETERS: dict[str, Callable[[], Iterable[str]]] = {
    "ROBOT": _robots,
    "TASK": _tasks,
    "TASK|ROBOT": lambda: [*_tasks(), *_robots()],
    "RUN": _runs,
    "RUN|POLICY": lambda: [*_runs(), *_policies()],
    "POLICY": _policies,
    "POLICIES": _policies,
    "DYNAMICS": lambda: ["analytic", "hybrid", *_runs()],
    "KIND": lambda: _registry("neurodyn.dynamics.kinds:KINDS"),
    "ALGORITHM": lambda: _registry("neurodyn.policy.algorithms:ALGORITHMS"),
    "PLANNER": lambda: [*_registry("neurodyn.control.planning.optimiser:PLANNERS"), "mpc", "imitation"],
    "GAIT": lambda: _registry("neurodyn.walking.gait:GAITS"),
    "tensorboard|wandb|none|MODULE:CLASS": lambda: ["tensorboard", "wandb", "none"],
    "cpu|cuda|cuda:N": lambda: ["cpu", "cuda", "cuda:0"],
}
"""Values that are known, by how they are written in the help."""


def _registry(place: str) -> list[str]:
    from importlib import import_module

    module, _, name = place.partition(":")
    return list(getattr(import_module(module), name))
