"""Kubernetes objects as plain JSON."""

from typing import Any

Object = dict[str, Any]
