# SPDX-License-Identifier: Apache-2.0
"""What `neurodyn demo` shows: a simulator learned, a log learned, a policy learned in a model."""
