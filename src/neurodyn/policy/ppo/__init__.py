# SPDX-License-Identifier: Apache-2.0
"""PPO of rsl_rl."""
