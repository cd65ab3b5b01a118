# SPDX-License-Identifier: Apache-2.0
"""Newton: assets read by its importer, and the simulator."""
