# SPDX-License-Identifier: Apache-2.0
"""SHAC and AHAC: policies trained by gradients through the dynamics."""
