"""The supervisor's listening socket, which no other process of the pod can share or take over."""

import contextlib
import socket

BACKLOG = 1024
"""Connections that may wait to be accepted. A burst of them from the code leaves room for operator and gateway."""


def bind_port(host: str, port: int) -> socket.socket:
    """Bind a TCP socket that does not listen yet; without a host to all addresses, IPv6 included if there is any.

    It has neither SO_REUSEADDR nor SO_REUSEPORT. With the first, gVisor lets the code bind a single address of the same
    port and gives it the connections to that address. Raises OSError.
    """
    if host:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _bind(family, (str(address[0]), port))
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _bind(socket.AF_INET6, ("::", port))
    return _bind(socket.AF_INET, ("", port))


def _bind(family: int, address: tuple[str, int]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            # the port of IPv4 too, so that nothing else can bind it there
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
