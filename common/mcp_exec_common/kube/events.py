"""Events: what Kubernetes shows of an object in `kubectl describe`."""

from datetime import datetime
from typing import Final

from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.meta import micro_time
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_tools.text import shorten

_MAX_MESSAGE: Final = 900
"""Characters of an Event's message; the API server takes 1024 bytes."""


def build_event(
    about: str,
    *,
    key: ObjectKey,
    uid: str,
    kind: str = "Normal",
    reason: str,
    message: str,
    moment: datetime,
    api_version: str = API_VERSION,
    component: str = "mcp-exec-operator",
) -> Object:
    """Return an Event about an object, for example a `CodeExecution`.

    `kind` is Normal or Warning. `api_version` is that of the object.
    """
    namespace, name = key
    at = micro_time(moment)[:19] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name[:200]}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": api_version,
            "kind": about,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": kind,
        "reason": reason,
        "message": shorten(message, _MAX_MESSAGE),
        "source": {"component": component},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
