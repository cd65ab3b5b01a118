# SPDX-License-Identifier: Apache-2.0
"""Walks of docs/from-your-project.md, run as they stand there; adaptations with settings that take seconds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neurodyn.cli.main import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-your-project.md"
SETTINGS = """
structures: false
networks: false
refits: 2
reference_steps: 5
proposals: 0
stages: [{seconds: 0.1, windows: 24, iterations: 4}]
"""


def walk(heading: str, settings: str = "", accepted: tuple[int, ...] = (0,)) -> Iterator[dict[str, Any]]:
    """Run the blocks under a heading; yield the names that its Python has defined after each.

    `settings` are more ones of adaptations; exit codes of commands are among those accepted.
    """
    Path("settings.yaml").write_text(SETTINGS + settings, encoding="utf-8")
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    for language, block in re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL):
        if language == "py":
            exec(block, names)
        else:
            for line in block.splitlines():
                words = line.split()[1:]
                more = ["--settings", "settings.yaml", "--json", "result.json"] if words[0] == "adapt" else []
                code = run([*words, *more])
                assert code in accepted, (line, code)
        yield names
    assert section, heading
