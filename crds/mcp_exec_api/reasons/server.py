"""Reasons why a ToolServer is unavailable."""

from enum import StrEnum
from typing import Self


class ServerReason(StrEnum):
    """Reason why a ToolServer is unavailable, with its meaning and a remedy for the person who reads it.

    `make generate` writes the table of docs/platform/tool-servers.md from here; `mcp-exec doctor` prints remedies.
    """

    meaning: str
    remedy: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "") -> Self:
        """Create a member that equals its value and has a meaning and a remedy."""
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.remedy = value, meaning, remedy
        return member

    NOT_OBSERVED = (
        "NotObserved",
        "no broker has seen it yet, which takes about a second; if it stays, its namespace is not served",
        "use a served namespace, or add this one to the chart's `namespaces` (docs/platform/teams.md); else "
        "check that the broker runs",
    )
    # the address and what answers there
    NAME_NOT_RESOLVED = (
        "NameNotResolved",
        "the host name of its address does not resolve in the cluster",
        "correct the host in `spec.url`; in a cluster without DNS, write the clusterIP of its Service: kubectl get "
        "service NAME -o jsonpath={.spec.clusterIP}",
    )
    CONNECTION_REFUSED = (
        "ConnectionRefused",
        "nothing listens at its address and port",
        "check that the server runs, and correct the port in `spec.url`; of a Service, it needs a ready pod",
    )
    UNREACHABLE = (
        "Unreachable",
        "no connection to its address within seconds, or no route to it",
        "correct the address in `spec.url`; check firewalls and the NetworkPolicies of broker and server",
    )
    ADDRESS_REFUSED = (
        "AddressRefused",
        "its host is, or resolves to, an address that the broker never connects to: loopback, link-local, "
        "multicast, a cloud's metadata service, the API server or a part of mcp-exec",
        "correct the host in `spec.url` or `spec.oauth.tokenUrl`; or add the address to the chart's "
        "`broker.allowedAddresses`",
    )
    TLS_FAILED = (
        "TLSFailed",
        "the TLS handshake fails: an unknown or expired certificate, one of another name, or a port without TLS",
        "use a certificate that names the host, of an authority that the broker trusts (the chart's `caBundle`); "
        "write http:// if the port has no TLS",
    )
    BUNDLE_NOT_FOUND = (
        "BundleNotFound",
        "the ConfigMap that `spec.tls` names, or its key, does not exist in its namespace",
        "create the ConfigMap that the message names, in the namespace of the ToolServer, or correct `key`",
    )
    BUNDLE_UNREADABLE = (
        "BundleUnreadable",
        "the ConfigMap of `spec.tls` cannot be read, or has no certificates in PEM, or too many",
        "follow the message; the key must have certificates in PEM of at most 128 KiB, and no private key",
    )
    PROXY_FAILED = (
        "ProxyFailed",
        "the company's proxy does not answer, requires other credentials, or refuses the address",
        "follow the message; check the proxy's rules and the chart's `proxy`; an address that needs no proxy belongs "
        "in `proxy.noProxy`",
    )
    TIMEOUT = (
        "Timeout",
        "it accepts connections, but does not answer in time",
        "read the server's log; a command must answer MCP requests on its standard output",
    )
    WRONG_PATH = (
        "WrongPath",
        "it answers 404, 405 or 410: its MCP endpoint is not at this path",
        "correct the path in `spec.url`, often /mcp; the endpoint must be streamable HTTP, not the older SSE",
    )
    REDIRECTED = (
        "Redirected",
        "it redirects to another address, which is not followed because credentials would go there",
        "write the address of the message into `spec.url`",
    )
    UNAUTHORIZED = (
        "Unauthorized",
        "it rejects the credentials, or requires some",
        "correct the Secret, or add `spec.headers` or `spec.oauth`; a changed Secret is read within seconds",
    )
    TOKEN_REFUSED = (
        "TokenRefused",
        "the token endpoint of `spec.oauth` issues no token",
        "follow the message; check `tokenUrl`, `scopes` and the Secret with client id and client secret",
    )
    SERVER_ERROR = (
        "ServerError",
        "it answers with another HTTP status of 400 or more, without an answer of the protocol",
        "read the server's log; a proxy in front of it may be the cause",
    )
    NOT_MCP = (
        "NotMCP",
        "something answers, but not with MCP: a web page, or output that is not JSON-RPC",
        "correct `spec.url` or `stdio.command`; a command may write only JSON-RPC to its standard output",
    )
    PROTOCOL_ERROR = (
        "ProtocolError",
        "it answers the handshake or the request for its tools with an error, or against the protocol",
        "follow the message; the revision of MCP that the server supports may be too old",
    )
    CONNECTION_LOST = (
        "ConnectionLost",
        "it closed the connection before it answered",
        "read the server's log; write https:// if the port has TLS",
    )
    # credentials
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        "a Secret that the spec names does not exist in its namespace",
        "create the Secret that the message names, in the namespace of the ToolServer",
    )
    SECRET_KEY_NOT_FOUND = (
        "SecretKeyNotFound",
        "a Secret does not have the key that the spec names",
        "add the key to the Secret, or correct `key`: kubectl describe secret NAME lists its keys",
    )
    SECRET_UNREADABLE = (
        "SecretUnreadable",
        "a Secret cannot be read, or its value is no text for a header",
        "follow the message; the broker needs the right to get Secrets of the namespace",
    )
    SECRET_OF_RELEASE = (
        "SecretOfRelease",
        "the Secret has keys of mcp-exec itself, which no server gets",
        "name a Secret of your own",
    )
    # the command of a stdio server
    COMMAND_EXITED = (
        "CommandExited",
        "the command exits; the message has its exit code and its last line on standard error",
        "correct what that line says; if it has no output and exits with 0, the command does not serve MCP on stdio",
    )
    COMMAND_NOT_STARTED = (
        "CommandNotStarted",
        "the command cannot be started: no such program in the image, or it is not executable",
        "correct `stdio.command` or `stdio.image`; a path is taken as it is, a name is looked up in PATH",
    )
    TOO_MANY_SESSIONS = (
        "TooManySessions",
        "as many processes of the command run as `stdio.maxSessions` allows",
        "raise `stdio.maxSessions`: each replica of the broker needs one, and one a user with own credentials",
    )
    BRIDGE_NOT_PROVEN = (
        "BridgeNotProven",
        "what answers at the address of its pod is not the pod's bridge, or its image is of another release; it got "
        "neither a token nor arguments",
        "follow the message; if it lasts, look for Services and pods that take this address",
    )
    # the pod of a stdio server
    STARTING = "Starting", "its pod is starting", "wait for its pod: kubectl get pods"
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "the image cannot be pulled; the message has the registry's error",
        "correct `stdio.image` or `stdio.imagePullSecrets`, or load the image into the nodes",
    )
    CRASH_LOOP = (
        "CrashLoop",
        "the bridge or the init container exits; the message has the exit code and the last lines",
        "follow the message; the image needs Python 3.9 or later as python3",
    )
    CONTAINER_NOT_STARTED = (
        "ContainerNotStarted",
        "the container cannot be created or started; the message has the kubelet's error",
        "follow the message; usually the image has no python3, or a volume or a security setting is refused",
    )
    POD_FAILED = "PodFailed", "the pod has ended", "follow the message; a new pod starts soon"
    UNSCHEDULABLE = (
        "Unschedulable",
        "no node has room for its pod",
        "add nodes, or lower `stdio.resources.requests`",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "a ResourceQuota of the namespace refuses its pod",
        "raise the namespace's ResourceQuota, or the chart's `quota`, or lower `stdio.resources`",
    )
    LIMIT_RANGE_EXCEEDED = (
        "LimitRangeExceeded",
        "a LimitRange of the namespace refuses its pod",
        "change `stdio.resources` to the bounds that the message names, or the chart's `limitRange`",
    )
    POD_REFUSED = (
        "PodRefused",
        "the API server refuses its pod",
        "follow the API server's message; usually the cause is Pod Security or an admission webhook",
    )
    REFUSED = (
        "Refused",
        "the API server refuses its Deployment or NetworkPolicy, or a right is missing",
        "follow the API server's message",
    )
    PODS_OF_OTHERS = (
        "PodsOfOthers",
        "its only ready pods have its labels, but not the template of its Deployment; they are not called",
        "delete the pods that the message names",
    )
    NAME_TAKEN = (
        "NameTaken",
        "`ts-NAME` exists and has another owner",
        "rename the ToolServer, or delete the object that the message names",
    )
    POD_NOT_READY = (
        "PodNotReady",
        "its pod has no state yet",
        "wait; if it lasts, check that the operator runs, and that it and the definitions are of the broker's release",
    )
    NO_SERVERS_IMAGE = (
        "NoServersImage",
        "the operator has no image with the bridge",
        "set the chart's `servers.image`",
    )
    # the object
    INVALID_SPEC = (
        "InvalidSpec",
        "the spec cannot be applied; the message names the field",
        "correct the field that the message names",
    )
    CHANGED = "Changed", "the ToolServer was changed or replaced a moment ago", "try again"


def is_of_credentials(word: str) -> bool:
    """Return whether the reason is that a Secret is missing or unusable."""
    return word.startswith("Secret")


def find_server_reason(word: object) -> ServerReason | None:
    """Return the reason of that word, or None: a status may be written by another version."""
    return ServerReason(word) if isinstance(word, str) and word in ServerReason.__members__.values() else None
