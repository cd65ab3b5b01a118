# SPDX-License-Identifier: Apache-2.0
"""Which quantities need a network."""
