# SPDX-License-Identifier: Apache-2.0
"""The fit in stages: windows that grow, structures that are tried, logs that may disagree."""
