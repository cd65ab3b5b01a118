# SPDX-License-Identifier: Apache-2.0
"""Terminal features shared by all verbs: flags, help, progress and messages."""
