# SPDX-License-Identifier: Apache-2.0
"""Choices by name that settings of identifications and requests share."""

from typing import Literal

Method = Literal["roll-outs", "inverse-dynamics"]
"""What is compared with the logs."""

Optimiser = Literal["levenberg-marquardt", "l-bfgs", "cma-es"]
"""Local optimiser of a search."""

StartKind = Literal["auto", "logged", "past"]
"""Initial states of held-out windows."""
