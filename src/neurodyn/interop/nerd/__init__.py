# SPDX-License-Identifier: Apache-2.0
"""Networks as the authors of NeRD train them, read from their checkpoints (arXiv 2508.15755)."""
