# SPDX-License-Identifier: Apache-2.0
"""Runs beside each other: what each is compared by, and which differ in their seed alone."""
