"""Pure conversion of pods, namespaces and NetworkPolicies to an nftables script.

It covers podSelector, namespaceSelector, ipBlock (with except), ports by number, range and (for ingress) name, TCP, UDP
and SCTP, for IPv4 only, like the cluster. What it cannot express opens nothing.

Two rules go beyond the policies. An address of the pod network whose pod is not listed yet cannot send, so that a new
pod never runs before its policy applies. And the node always reaches its pods, as Kubernetes requires for probes.
"""

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
TABLE = "inet netpol"
DIRECTIONS = (("Ingress", "ingress", "from", "daddr", "saddr"), ("Egress", "egress", "to", "saddr", "daddr"))


def build_ruleset(*, pods: list[Object], namespaces: list[Object], policies: list[Object], pod_network: str) -> str:
    """Return an nftables script that replaces the current rules."""
    owners = address_owners(pods)
    labels = {item["metadata"]["name"]: _namespace_labels(item) for item in namespaces}
    chains = {direction[1]: _build_chain(direction, policies, owners, labels) for direction in DIRECTIONS}
    jumps = {
        "egress": f"    ip saddr {_set(chains['egress'][0])} jump egress" if chains["egress"][0] else "",
        "ingress": f"    ip daddr {_set(chains['ingress'][0])} jump ingress" if chains["ingress"][0] else "",
    }
    known = f" ip saddr != {_set(owners)}" if owners else ""
    start = ["    ct state established,related accept", f"    ip saddr {pod_network}{known} drop"]
    lines = [
        f"table {TABLE} {{}}",
        f"delete table {TABLE}",
        f"table {TABLE} {{",
        *(line for name in ("ingress", "egress") for line in (f"  chain {name} {{", *chains[name][1], "  }")),
        "  chain forward {",
        "    type filter hook forward priority -5; policy accept;",
        *start,
        jumps["egress"],
        jumps["ingress"],
        "  }",
        "  chain input {",
        "    type filter hook input priority -5; policy accept;",
        *start,
        jumps["egress"],
        "  }",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def address_owners(pods: list[Object]) -> dict[str, Object]:
    """Return the pod of each address. A terminating pod counts while it runs; of two pods the younger one counts."""
    owners: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", ""))):
        address = pod.get("status", {}).get("podIP")
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if address and not ended and not pod["spec"].get("hostNetwork"):
            owners[address] = pod
    return owners


def selects(selector: Object | None, labels: dict[str, str]) -> bool:
    """Return whether a label selector matches. None matches nothing; an empty selector matches everything."""
    if selector is None:
        return False
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches_expression(rule, labels) for rule in selector.get("matchExpressions") or [])


def _matches_expression(rule: Object, labels: dict[str, str]) -> bool:
    value = labels.get(rule["key"])
    if rule["operator"] == "In":
        return value in rule["values"]
    if rule["operator"] == "NotIn":
        return value not in rule["values"]
    if rule["operator"] == "Exists":
        return value is not None
    return rule["operator"] == "DoesNotExist" and value is None


def _namespace_labels(namespace: Object) -> dict[str, str]:
    name = namespace["metadata"]["name"]
    # Kubernetes sets this label from 1.21 on, and policies may use it
    return {**(namespace["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}


def _pod_labels(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _build_chain(
    direction: tuple[str, str, str, str, str],
    policies: list[Object],
    owners: dict[str, Object],
    labels: dict[str, dict[str, str]],
) -> tuple[list[str], list[str]]:
    """Return the addresses that policies of one direction isolate, and the rules that allow traffic.

    A packet that egress allows must still pass ingress, so rules return instead of accepting it.
    """
    kind, rules_key, peers_key, own_side, peer_side = direction
    isolated: set[str] = set()
    lines: list[str] = []
    for policy in policies:
        spec, namespace = policy["spec"], policy["metadata"]["namespace"]
        default_types = ["Ingress", "Egress"] if "egress" in spec else ["Ingress"]
        if kind not in (spec.get("policyTypes") or default_types):
            continue
        selected = {
            address: pod
            for address, pod in owners.items()
            if pod["metadata"]["namespace"] == namespace and selects(spec.get("podSelector") or {}, _pod_labels(pod))
        }
        isolated.update(selected)
        for rule in spec.get(rules_key) or []:
            sources = list(_match_peers(rule.get(peers_key), peer_side, namespace, owners, labels))
            for addresses, port in _match_ports(rule.get("ports"), selected, named=kind == "Ingress"):
                own = f"ip {own_side} {_set(addresses)}"
                wanted = sources if rule.get(peers_key) else [""]
                lines += [" ".join(part for part in ("   ", own, peer, port, "return") if part) for peer in wanted]
    return sorted(isolated), [*lines, "    drop"]


def _match_peers(
    peers: list[Object] | None, side: str, namespace: str, owners: dict[str, Object], labels: dict[str, dict[str, str]]
) -> Iterator[str]:
    """Yield the match of each peer that has an address."""
    for peer in peers or []:
        if "ipBlock" in peer:
            block = peer["ipBlock"]
            exceptions = [cidr for cidr in block.get("except") or [] if ":" not in cidr]
            if ":" not in block["cidr"]:
                yield f"ip {side} {block['cidr']}" + (f" ip {side} != {_set(exceptions)}" if exceptions else "")
            continue
        found = [address for address, pod in owners.items() if _is_peer(pod, peer, namespace, labels)]
        if found:
            yield f"ip {side} {_set(found)}"


def _is_peer(pod: Object, peer: Object, namespace: str, labels: dict[str, dict[str, str]]) -> bool:
    where = pod["metadata"]["namespace"]
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], labels.get(where, {})):
            return False
    elif where != namespace:
        return False
    return "podSelector" not in peer or selects(peer["podSelector"], _pod_labels(pod))


def _match_ports(
    ports: list[Object] | None, selected: dict[str, Object], *, named: bool
) -> Iterator[tuple[list[str], str]]:
    """Yield groups of addresses of the selected pods, each with the match of a port that is open there."""
    if not selected:
        return
    if not ports:
        yield list(selected), ""
    for port in ports or []:
        protocol = str(port.get("protocol", "TCP")).lower()
        number = port.get("port")
        if number is None:
            yield list(selected), f"meta l4proto {protocol}"
        elif isinstance(number, int):
            last = f"-{port['endPort']}" if port.get("endPort") else ""
            yield list(selected), f"{protocol} dport {number}{last}"
        elif named:
            for address, pod in selected.items():
                for resolved in _named_ports(pod, number, protocol):
                    yield [address], f"{protocol} dport {resolved}"


def _named_ports(pod: Object, name: str, protocol: str) -> Iterator[int]:
    for container in pod["spec"].get("containers") or []:
        for port in container.get("ports") or []:
            if port.get("name") == name and str(port.get("protocol", "TCP")).lower() == protocol:
                yield int(port["containerPort"])


def _set(addresses: list[str] | dict[str, Object]) -> str:
    return f"{{ {', '.join(sorted(addresses))} }}"
