# SPDX-License-Identifier: Apache-2.0
"""Planning: sequences of actions, improved in a model at every frame."""
