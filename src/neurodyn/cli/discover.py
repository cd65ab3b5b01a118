# SPDX-License-Identifier: Apache-2.0
"""`neurodyn discover`: which augmentations the data ask for."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.identify.requests import DiscoverRequest


@command(DiscoverRequest, after={"json": "device"})
def discover(request: DiscoverRequest, *, json: Path | None = None) -> None:
    """Find which quantities of a robot's dynamics need a network, and which inputs each needs.

    Writes a hybrid model with the networks that were found, blueprint.yaml and discovery.json to the run directory.

    Flags:
        json: File for the result as JSON.

    Example:
        neurodyn discover dfki-c1 --data log.npz --base runs/c1 --out runs/networks
    """
    from neurodyn.cli.terminal.console import ProgressBar, terminal
    from neurodyn.cli.terminal.tables import print_table
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.identify.discovery_run import discover_robot

    require_writable(json, text=True)
    with ProgressBar(f"discovering {request.robot}"):
        result = discover_robot(request)
    pairs = [(pair["quantity"], pair["input"]) for pair in result["pairs"]]
    print_table(terminal(), ("acts on", "input"), pairs, f"{result['robot']}: what the data ask for")
    print(f"held-out error {result['held_out_error']:.4g} (without networks {result['bare_error']:.4g})")
    print(f"model: {request.out}")
    if json is not None:
        write_json(json, result)
        print(f"figures: {json}")
