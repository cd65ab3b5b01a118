# SPDX-License-Identifier: Apache-2.0
"""World models: ensembles that are learned from logs alone."""
