"""Objects that a cache keeps are small."""

import json
import tracemalloc
from typing import Any

from mcp_exec_common.kube.objects import Object, compact

POD = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "default-x",
            "labels": {"mcp-exec.dev/pool": "default", "mcp-exec.dev/state": "warm"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}],
        },
        "spec": {"containers": [{"name": "sandbox", "image": "sandbox:dev", "env": [{"name": "A", "value": "1"}]}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "restarts": [0, 1.5, None]},
    }
)


def measure(make: Any) -> int:
    """Return the bytes that 200 objects take."""
    tracemalloc.start()
    try:
        kept = [make(json.loads(POD)) for _ in range(200)]
        return tracemalloc.get_traced_memory()[0] if kept else 0
    finally:
        tracemalloc.stop()


def test_a_compact_object_lacks_only_who_changed_which_field() -> None:
    pod = json.loads(POD)
    found: Object = compact(pod)
    assert pod["metadata"].pop("managedFields"), "the object itself stays as it is"
    assert found == pod


def test_what_an_event_did_not_change_is_that_of_the_copy_before() -> None:
    former = compact(json.loads(POD))
    pod = json.loads(POD)
    pod["status"]["phase"], pod["metadata"]["labels"]["mcp-exec.dev/state"] = "Failed", "busy"
    pod["metadata"]["annotations"] = {"a": "b"}
    found = compact(pod, former)
    assert found["spec"] is former["spec"]
    pod["metadata"].pop("managedFields")
    assert found == pod
    assert former == compact(json.loads(POD)), "the copy before stays as it is"


def test_similar_objects_share_their_memory() -> None:
    assert measure(compact) < measure(lambda pod: pod) / 2
