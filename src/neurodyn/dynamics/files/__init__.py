# SPDX-License-Identifier: Apache-2.0
"""Models as files: ours, those of others, and what ties them to a robot."""
