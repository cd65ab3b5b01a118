# SPDX-License-Identifier: Apache-2.0
"""Versions of installed packages, for the record."""

from importlib.metadata import PackageNotFoundError, version


def package_versions(*packages: str) -> dict[str, str]:
    """Return the installed versions of neurodyn, numpy, h5py and of further `packages`, for a header."""
    versions = {}
    for name in ("neurodyn", "numpy", "h5py", *packages):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
