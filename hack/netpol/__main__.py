"""Enforce NetworkPolicies with nftables, and on a cluster with several nodes connect their pods.

Each change replaces all rules atomically. This program needs only the standard library, because a fresh machine has
nothing else.
"""

import argparse
import ssl
import subprocess
import sys
import threading
from pathlib import Path

from nodes import Nodes
from rules import build_ruleset
from watch import Watcher

RESOURCES = {
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "policies": "/apis/networking.k8s.io/v1/networkpolicies",
}
PAUSE_SECONDS = 0.02  # a burst of pod changes becomes one rule set


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the API server's URL")
    parser.add_argument("--ca", required=True, type=Path, help="the API server's certificate authority")
    parser.add_argument("--certificate", type=Path, help="a client certificate")
    parser.add_argument("--key", type=Path, help="its key")
    parser.add_argument("--token", type=Path, help="a bearer token, in place of the certificate")
    parser.add_argument("--pod-network", required=True, help="the CIDR of all pods")
    parser.add_argument("--node", required=True, help="name of this node")
    parser.add_argument(
        "--cni", type=Path, help="write this node's CNI configuration to this file, and routes to the other nodes' pods"
    )
    options = parser.parse_args()
    if (options.token is None) == (options.certificate is None) or (options.certificate is None) != (
        options.key is None
    ):
        parser.error("give either --token, or --certificate with --key")
    return options


def apply(script: str) -> bool:
    """Replace the rules by those of `script`. Return False and keep the old rules if nft rejects it."""
    done = subprocess.run(["nft", "-f", "-"], input=script, text=True, capture_output=True, timeout=60)
    if done.returncode:
        print(done.stderr, script, file=sys.stderr, flush=True)
    return done.returncode == 0


def main() -> None:
    """Follow the cluster until the process is stopped."""
    options = parse_arguments()
    tls = ssl.create_default_context(cafile=str(options.ca))
    if options.certificate:
        tls.load_cert_chain(options.certificate, options.key)
    changed = threading.Event()
    urls = {kind: options.server + path for kind, path in RESOURCES.items()}
    if options.cni:
        urls["nodes"] = options.server + "/api/v1/nodes"
    else:  # without other nodes, the pods of this one are all pods
        urls["pods"] += f"?fieldSelector=spec.nodeName%3D{options.node}"
    watchers = {kind: Watcher(url=url, tls=tls, token=options.token, changed=changed) for kind, url in urls.items()}
    for watcher in watchers.values():
        threading.Thread(target=watcher.follow, daemon=True).start()
    for watcher in watchers.values():
        watcher.listed.wait()
    nodes = Nodes(own=options.node, file=options.cni) if options.cni else None
    applied = ""
    pause = threading.Event()
    while True:
        changed.wait()
        changed.clear()
        script = build_ruleset(
            pods=watchers["pods"].objects(),
            namespaces=watchers["namespaces"].objects(),
            policies=watchers["policies"].objects(),
            pod_network=options.pod_network,
        )
        if script != applied and apply(script):
            applied = script
        if nodes and applied:  # the kubelet starts pods once there is a configuration, so the rules come first
            nodes.follow(watchers["nodes"].objects())
        pause.wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
