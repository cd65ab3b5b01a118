# SPDX-License-Identifier: Apache-2.0
"""`neurodyn completion`: what shells offer at TAB: verbs, flags, robots, tasks, runs and other names."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

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
        offered: Iterable[str] = [*verbs, "--help", "--version"]
    elif before[0] not in verbs:
        offered = ()
    elif isinstance(called := verbs[before[0]].load(), Registry):
        return candidates(called, words[1:])
    else:
        offered = _offered(called, before[1:], last)
    return sorted({name for name in offered if name.startswith(last)})


def _offered(verb: Callable[..., None], before: Sequence[str], last: str) -> Iterable[str]:
    """Return the flags of a verb that are left, or the values of the flag or argument that comes next."""
    parameters = [_VerbParameter(one) for one in inspect.signature(verb).parameters.values()]
    flags = {flag: one for one in parameters for flag in one.flags}
    if last.startswith("-"):
        return ["--help", *(flag for flag, one in flags.items() if one.several or flag not in before)]
    flag, given = None, False
    for word in before:
        if word.startswith("--"):
            flag = flags.get(word)
        elif flag is None or flag.switch:
            given = True
        elif not flag.several:
            flag = None
    if flag is None or flag.switch:
        flag = next((one for one in parameters if not one.flags and (one.several or not given)), None)
    return () if flag is None else flag.values()


class _VerbParameter:
    """A flag of a verb, or an argument, which has no `flags`, as the signature has it."""

    def __init__(self, given: inspect.Parameter) -> None:
        parts, name = list(_parts(given.annotation)), given.name.strip("_")
        self.switch, self.several = bool in parts, any(get_origin(one) is tuple for one in parts)
        flag, paired = f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"
        self.flags = [] if given.kind is given.POSITIONAL_ONLY else [flag, paired] if self.switch else [flag]
        shown = next((text for one in parts if isinstance(text := getattr(one, "metavar", None), str)), "")
        self._known = _NAMES.get(shown or name)
        self._choices = [one for one in parts if isinstance(one, str)]
        self._choices += [word for word in re.split(r"[{,|}]", shown) if word.islower()]  # of tensorboard|MODULE:CLASS

    def values(self) -> Iterable[str]:
        """Return the values that are known."""
        return self._choices if self._known is None else self._known()


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation, the types and values in it, and what it is annotated with."""
    yield annotation
    for one in get_args(annotation):
        yield from _parts(one)


def _runs() -> list[str]:
    from neurodyn.core.artifacts import PRETRAINED, pretrained_names

    return [*(PRETRAINED + name for name in pretrained_names()), *_folders("model/spec.json")]


def _policies() -> list[str]:
    from neurodyn.core.artifacts import PRETRAINED_POLICY, pretrained_policy_names

    names = [PRETRAINED_POLICY + name for name in pretrained_policy_names()]
    return [*names, *_folders("policy.safetensors")]


def _folders(holding: str) -> list[str]:
    """Return folders near the present one that hold a file; a run's state/ is no run."""
    found = [Path(path) for depth in range(_DEPTH + 1) for path in glob("*/" * depth + holding)]
    above = len(Path(holding).parts) - 1
    return [path.parents[above].as_posix() for path in found if "state" not in path.parts]


def _listed(place: str) -> list[str]:
    """Return the names in a registry, or those that a function returns, at "module:attribute"."""
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    return list(found if isinstance(found, Registry) else found())


_robots = partial(_listed, "neurodyn.robots:names")
_tasks = partial(_listed, "neurodyn.tasks:names")
_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "robot": _robots,
    "task": _tasks,
    "TASK|ROBOT": lambda: [*_tasks(), *_robots()],
    "run": _runs,
    "base": _runs,
    "runs": lambda: [*_runs(), *_policies()],
    "policy": _policies,
    "policies": _policies,
    **dict.fromkeys(("dynamics", "model", "plant"), lambda: ["analytic", "hybrid", *_runs()]),
    "kind": partial(_listed, "neurodyn.dynamics.kinds:KINDS"),
    "algorithm": partial(_listed, "neurodyn.policy.algorithms:ALGORITHMS"),
    "planner": lambda: [*_listed("neurodyn.control.planning.optimiser:PLANNERS"), "mpc", "imitation"],
    "gait": partial(_listed, "neurodyn.walking.gait:GAITS"),
}
"""Names that a value may be, by the name of its parameter, or by how the help writes it."""
