# SPDX-License-Identifier: Apache-2.0
"""Results of evaluations: typed in Python, plain data in JSON."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A typed result; `rename` gives fields other keys in JSON.

    Attributes:
        inline: Fields whose entries stand beside the other keys in JSON instead of below a key of their own.
    """

    inline: ClassVar[tuple[str, ...]] = ()

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON holds it; what is UNSET is left out."""
        found: dict[str, Any] = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = plain(getattr(self, name))
            if value is not UNSET:
                found |= value if name in self.inline else {key: value}
        return found


def plain(value: Any) -> Any:
    """Return records, and what holds them, as dictionaries and lists."""
    if isinstance(value, Record):
        return value.plain()
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value
