"""What a sampled stack does, by rules on its frames: one table for the API server, one for processes in Python.

A rule is a part of a frame. From the innermost frame on, the first one that has a rule decides; of its rules, the first
in the table. So an allocation counts as allocation wherever it happens, and a frame without a rule, such as a helper of
the standard library, counts for its caller.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pprof import Sample

Rules = Mapping[str, tuple[str, ...]]
"""Activities, with the parts of frames that belong to them."""
OTHER: Final = "other"
IDLE: Final = ("_worker (concurrent/futures/thread.py)",)
"""Innermost frames of threads that wait, which py-spy counts as if they worked."""

REQUESTS: Final[Rules] = {
    "status of executions, written": ("serveStatus.UpdateResource",),
    "status of pools, written": ("serveStatus.PatchResource",),
    "executions, created": ("crdHandler).serveResource.CreateResource",),
    "pods and events, created": ("CreateResource", "BindingREST", "createHandler"),
    "pods, changed": ("PatchResource", "(*patcher)", "(*jsonPatcher)"),
    "leases and others, updated": ("UpdateResource",),
    "pods, deleted": ("DeleteResource", "DeleteCollection"),
    "watches, sent": (
        "handlers.serveWatchHandler", "handlers.handleWatch", "(*WatchServer)", "(*watchEncoder)",
        "cacher.(*cacheWatcher)", "cacher.(*Cacher).dispatch", "ListResource",
    ),
    "watch cache, from etcd": (
        "cacher.(*watchCache)", "client-go/tools/cache.(*Reflector)", "etcd3.(*watchChan)", "etcd3.(*watcher)",
        "client/v3.(*watchGRPCStream)", "client/v3.(*watchGrpcStream)",
    ),
    "reads": ("GetResource",),
    "authentication, limits and audit, before a request": (
        "apiserver/pkg/endpoints/filters", "apiserver/pkg/server/filters", "apiserver/pkg/endpoints/filterlatency",
    ),
    "connections": (
        "net/http.(*conn", "net/http.(*http2", "net/http.(*persistConn", "golang.org/x/net/http2",
        "google.golang.org/grpc",
    ),
    "garbage collection": ("runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"),
    "Go's scheduler": ("runtime.mcall", "runtime.mstart", "runtime.schedule", "runtime.sysmon", "runtime.findRunnable"),
    "own informers": ("client-go/",),
}  # fmt: skip
"""What the API server works for: the request, or what it does for all of them."""

ACTIVITIES: Final[Rules] = {
    "garbage collection": (
        "runtime.gcBgMarkWorker", "runtime.gcAssist", "runtime.gcDrain", "runtime.bgsweep", "runtime.bgscavenge",
        "runtime.gcStart", "runtime.gcMark", "runtime.scanobject", "runtime.greyobject", "runtime.sweepone",
        "runtime.(*sweepLocked)", "runtime.gcWriteBarrier", "runtime.wbBufFlush",
    ),
    "allocation": (
        "runtime.mallocgc", "runtime.newobject", "runtime.growslice", "runtime.makeslice", "runtime.makemap",
        "runtime.memclr", "runtime.rawbyteslice", "runtime.concatstring", "runtime.slicebytetostring",
        "runtime.(*mcache)", "runtime.(*mheap)",
    ),
    "field management": ("structured-merge-diff", "managedfields", "fieldmanager"),
    "CEL": ("google/cel-go", "apiserver/schema/cel", "apiserver/pkg/cel", "plugin/cel", "plugin/policy"),
    "custom resources: pruning, defaults, schemas": (
        "k8s.io/apiextensions-apiserver", "kube-openapi/pkg/validation", "apis/meta/v1/unstructured",
    ),
    "copies": ("DeepCopy",),
    "encoding, JSON": (
        "encoding/json", "json-iterator", "sigs.k8s.io/json", "serializer/json", "go.yaml.in", "sigs.k8s.io/yaml",
    ),
    "encoding, protobuf and CBOR": (
        "serializer/protobuf", "serializer/cbor", "fxamacker/cbor", ").Unmarshal", ").MarshalTo", ").MarshalToSized",
        ").Size", ").Marshal",
    ),
    "conversion between versions": ("runtime.(*Scheme)", "serializer/versioning", "pkg/conversion", "zz_generated"),
    "admission and validation": ("apiserver/pkg/admission", "plugin/pkg/admission", "pkg/apis/core/validation",
                                 "registry/core/pod", "util/validation"),
    "authentication, authorization": (
        "pkg/authentication", "pkg/authorization", "plugin/pkg/auth", "serviceaccount", "rbac", "go-jose", "crypto/rsa",
    ),
    "fairness and limits": ("flowcontrol", "apiserver/pkg/server/filters.", "queueset"),
    "audit": ("apiserver/pkg/audit", "plugin/pkg/audit"),
    "watch cache": ("storage/cacher", "client-go/tools/cache", "google/btree"),
    "etcd's client": ("storage/etcd3", "go.etcd.io/etcd", "google.golang.org/grpc"),
    "metrics, logs, traces": (
        "prometheus", "component-base/metrics", "k8s.io/klog", "opentelemetry", "k8s.io/utils/trace",
        "component-base/tracing", "endpoints/metrics", "httplog",
    ),
    "network and TLS": ("crypto/", "net/http", "golang.org/x/net", "net.(*", "internal/poll", "syscall.", "bufio."),
    "Go's scheduler": (
        "runtime.mcall", "runtime.mstart", "runtime.schedule", "runtime.findRunnable", "runtime.futex",
        "runtime.sysmon", "runtime.netpoll", "runtime.goready", "runtime.ready", "runtime.gopark", "runtime.park_m",
        "runtime.wakep", "runtime.selectgo", "runtime.chansend", "runtime.chanrecv", "runtime.morestack",
        "runtime.newproc",
    ),
    "requests, all else": ("k8s.io/apiserver/pkg/endpoints", "k8s.io/apiserver/pkg/registry", "k8s.io/kubernetes/pkg"),
}  # fmt: skip
"""What the API server does."""

PARTS: Final[Rules] = {
    "JSON": ("(json/",),
    "HTTP to the API server": ("(mcp_exec_common/kube/client",),
    "kopf": ("(kopf/",),
    "watches": ("(mcp_exec_common/kube/reflector", "(mcp_exec_operator/cluster/kube/"),
    "HTTP to sandboxes": ("(mcp_exec_common/supervisor/", "(mcp_exec_common/peers"),
    "aiohttp": ("(aiohttp/", "(yarl/", "(multidict/", "(propcache/", "(aiosignal/"),
    "HTTP server": (
        "(uvicorn/", "(starlette/", "(fastapi/", "(mcp_exec_common/process/http", "(mcp_exec_gateway/core/http/",
    ),
    "copies of objects": ("(mcp_exec_common/kube/objects", "(copy.py"),
    "types and validation": ("(pydantic", "(mcp_exec_api/"),
    "signatures and digests": ("(hmac.py", "(hashlib.py", "(jwt/", "(mcp_exec_common/broker/attestations"),
    "metrics": ("(prometheus_client/",),
    "logs": ("(logging/",),
    "executions": (
        "(mcp_exec_operator/core/executions", "(mcp_exec_gateway/core/executions", "(mcp_exec_gateway/core/routes",
        "(mcp_exec_gateway/core/events",
    ),
    "pods and pools": (
        "(mcp_exec_operator/core/pods", "(mcp_exec_operator/core/pools", "(mcp_exec_operator/core/scaling",
        "(mcp_exec_operator/core/queueing", "(mcp_exec_gateway/core/pools",
    ),
    "features": ("(mcp_exec_operator/features/", "(mcp_exec_gateway/features/"),
    "rest of the process": ("(mcp_exec_operator/", "(mcp_exec_gateway/"),
    "common code": ("(mcp_exec_common/", "(mcp_exec_tools/"),
    "event loop, TLS and sockets": ("(asyncio/", "(uvloop/", "(selectors.py", "(ssl.py"),
}  # fmt: skip
"""What a process in Python does. The event loop is C, whose time counts for the frame that runs it."""


def classify(sample: Sample, rules: Rules) -> str:
    """Return the activity of a stack, or OTHER."""
    for frame in sample.frames:
        for activity, parts in rules.items():
            if any(part in frame for part in parts):
                return activity
    return OTHER


def compute_shares(samples: Iterable[Sample], rules: Rules) -> dict[str, float]:
    """Return the percentage of each activity that was seen, the largest first, and what is left as the last one."""
    counts = Counter[str]()
    for sample in samples:
        if not sample.frames[0].startswith(IDLE):
            counts[classify(sample, rules)] += sample.count
    total = sum(counts.values())
    rest = counts.pop(OTHER, 0)
    ordered = [*counts.most_common(), *([(OTHER, rest)] if rest else [])]
    return {activity: round(100 * count / total, 1) for activity, count in ordered}


def list_functions(samples: Iterable[Sample], *, most: int, whole: bool = False) -> dict[str, float]:
    """Return the percentage of the functions that take most time themselves or, with `whole`, with their callees."""
    counts, total = Counter[str](), 0
    for sample in samples:
        total += sample.count
        for frame in set(sample.frames) if whole else sample.frames[:1]:
            counts[frame] += sample.count
    return {frame: round(100 * count / total, 1) for frame, count in counts.most_common(most)}
