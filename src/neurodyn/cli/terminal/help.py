# SPDX-License-Identifier: Apache-2.0
"""The help of a verb: usage, arguments, flags and an example, as wide as the terminal."""

import shutil
import textwrap

from neurodyn.cli.terminal.signature import Signature, VerbParameter

_MOST, _INDENT = 100, 22


def help_text(signature: Signature, command: str) -> str:
    """Return what `neurodyn VERB --help` prints."""
    width = min(_MOST, shutil.get_terminal_size().columns)
    arguments = [one for one in signature.parameters if one.positional]
    required = [one for one in signature.parameters if one.required and not one.positional]
    flags = [one for one in signature.parameters if not one.required and not one.positional]
    usage = " ".join(["usage:", command, *map(_usage, (*arguments, *required)), *(["[FLAGS]"] if flags else [])])
    parts = [textwrap.fill(usage, width, subsequent_indent=" " * (8 + len(command))), _filled(signature.summary, width)]
    for title, some in (("", arguments), ("Required:", required), ("Flags:", flags)):
        if some:
            parts.append("\n".join([title] * bool(title) + [_entry(one, width) for one in some]))
    if signature.examples:
        parts.append("\n".join(["For example:", *(f"  {line}" for line in signature.examples)]))
    return "\n\n".join(parts)


def _filled(text: str, width: int) -> str:
    return "\n\n".join(textwrap.fill(part, width) for part in text.split("\n\n"))


def _usage(one: VerbParameter) -> str:
    several = "..." if one.count is None else ""
    if one.positional:
        return f"{one.name}{several}" if one.required else f"[{one.name}{several}]"
    return f"{one.name} {one.value}{several}".rstrip()


def _entry(one: VerbParameter, width: int) -> str:
    name = one.name if one.positional else _usage(one)
    said = one.help
    nothing = one.default is None or one.default is False or one.default == ()
    default = "" if nothing else f" [{_plain(one.default)}]"
    if one.switch and one.default:
        name, default = one.off, ""
    lines = textwrap.wrap(said + default, width - _INDENT, break_long_words=False) or [""]
    head = f"  {name}"
    if len(head) + 2 > _INDENT:
        return "\n".join([head, *(" " * _INDENT + line for line in lines)])
    return "\n".join([f"{head:<{_INDENT}}{lines[0]}", *(" " * _INDENT + line for line in lines[1:])])


def _plain(default: object) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
