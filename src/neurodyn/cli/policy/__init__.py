# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy`: one action, one file."""
