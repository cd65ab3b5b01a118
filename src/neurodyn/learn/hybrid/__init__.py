# SPDX-License-Identifier: Apache-2.0
"""Training of the networks in hybrid dynamics."""
