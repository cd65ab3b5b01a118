# SPDX-License-Identifier: Apache-2.0
"""Data from the simulator: random grounds, states and controls, batch by batch."""
