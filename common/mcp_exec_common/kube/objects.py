"""Kubernetes objects as plain JSON."""

from typing import Any

Object = dict[str, Any]


def drop_empty_fields(fields: Object) -> Object:
    """Return the fields of an API object without those that are null or an empty string.

    API servers before Kubernetes 1.24, if built by Go 1.22 or later, read an empty string as null and reject it.
    """
    return {name: value for name, value in fields.items() if value is not None and value != ""}
