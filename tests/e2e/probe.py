"""Tries to leave a sandbox. Runs inside one; `targets` comes by the execution's context.

The result maps each attempt to what came of it: a text that begins with "open" where it worked.
"""
# ruff: noqa: F821

import ctypes
import os
import signal
import socket
from pathlib import Path


def connects(address, port):
    with socket.create_connection((address, port), timeout=2) as connection:
        return f"open: {connection.getpeername()}"


def answers(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(2)
        connection.sendto(b"ping", (address, port))
        return f"open: {connection.recv(100)!r}"


def resolves(name):
    return f"open: {socket.gethostbyname(name)}"


def reads(path):
    with open(path, "rb") as file:
        found = file.read(100).strip(b"\0")
    if not found:
        raise PermissionError("it is empty")
    return f"open: {len(found)} bytes"


def host_files():
    paths = ("/var/lib/kubelet", "/run/containerd", "/dev/sda", "/dev/vda", "/dev/kmsg", "/proc/kcore")
    found = [path for path in paths if os.access(path, os.R_OK) and (os.path.isdir(path) or reads(path))]
    if not found:
        raise PermissionError("nothing of the host can be read")
    return f"open: {found}"


def writes(path):
    Path(path).write_text("x")
    return "open"


def set_user():
    os.setuid(0)
    return "open"


def setuid_program():
    target = "/workspace/program"
    Path(target).write_bytes(Path("/bin/true").read_bytes())
    os.chown(target, 0, 0)
    os.chmod(target, 0o4755)
    return "open"


def raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "open"


def packet_socket():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300).close()
    return "open"


def system_call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "open"


def kills_supervisor():
    os.kill(1, signal.SIGKILL)
    with open("/proc/1/comm") as file:
        raise PermissionError(f"{file.read().strip()} lives on")


def supervisor_api(port):
    token = os.environ.get("MCP_EXEC_TOKEN_SHA256", "x")
    headers = f"Host: x\r\nAuthorization: Bearer {token}\r\nConnection: close"
    request = f"DELETE /v1/execution HTTP/1.1\r\n{headers}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(request.encode())
        status = connection.recv(100).split(b"\r\n")[0].decode()
    if " 401 " in status:
        raise PermissionError(status)
    return f"open: {status}"


def takes_port(port):
    """Listens where the supervisor does, on every address and with every option that may let two sockets share it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(tuple(targets["pod"]))
        pod = route.getsockname()[0]
    four = ["0.0.0.0", "127.0.0.1", "127.0.0.2", pod]
    six = ["::", "::1", *(f"::ffff:{address}" for address in four)]
    ways = [(socket.AF_INET, address, None) for address in four]
    ways += [(socket.AF_INET6, address, only) for address in six for only in (0, 1)]
    options = [[], [socket.SO_REUSEADDR], [socket.SO_REUSEPORT], [socket.SO_REUSEADDR, socket.SO_REUSEPORT]]
    found = [(way[1:], chosen) for way in ways for chosen in options if listens(*way, port, chosen)]
    if not found:
        raise PermissionError("every way is refused")
    return f"open: {found}"


def listens(family, address, only_six, port, options):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as server:
            for option in options:
                server.setsockopt(socket.SOL_SOCKET, option, 1)
            if only_six is not None:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_six)
            server.bind((address, port))
            server.listen()
    except OSError:
        return False
    return True


def fills_supervisor(port):
    """Opens connections from many addresses of the pod, and keeps those that the supervisor keeps."""
    kept = []
    for number in range(200):
        connection = socket.create_connection(("127.0.0.1", port), timeout=2, source_address=(f"127.0.1.{number}", 0))
        kept.append(connection)
    for connection in kept:
        connection.settimeout(0.2)
    closed = 0
    for connection in kept[100:]:
        try:
            closed += connection.recv(1) == b""
        except ConnectionResetError:
            closed += 1
        except TimeoutError:
            pass
        connection.close()
    if closed == 100:
        raise PermissionError("the supervisor keeps a few")
    return f"open: {100 - closed} of the last 100"


def secrets_in_environment():
    found = [name for name, value in os.environ.items() if "TOKEN" in name.upper() and "SHA256" not in name.upper()]
    found += [name for name in os.environ if name.endswith("_SERVICE_HOST")]
    if not found:
        raise PermissionError("none")
    return f"open: {found}"


ATTEMPTS = {
    "connect to the API server (its Service)": lambda: connects(*targets["api_service"]),
    "connect to the API server (its address)": lambda: connects(*targets["api_server"]),
    "connect to the node (its kubelet)": lambda: connects(*targets["node"]),
    "connect to another pod": lambda: connects(*targets["pod"]),
    "exchange UDP with another pod": lambda: answers(*targets["pod"]),
    "connect to another sandbox's supervisor": lambda: connects(*targets["sandbox"]),
    "connect to the gateway": lambda: connects(*targets["gateway"]),
    "connect to the cloud's metadata address": lambda: connects(*targets["metadata"]),
    "look a name up in DNS": lambda: resolves("kubernetes.default.svc"),
    "read the service account's token": lambda: reads("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "find secrets in the environment": secrets_in_environment,
    "read files or devices of the host": host_files,
    "read /etc/shadow": lambda: reads("/etc/shadow"),
    "write to /etc": lambda: writes("/etc/probe"),
    "write to the runner's code": lambda: writes("/opt/mcp-exec/probe"),
    "write to /usr/local": lambda: writes("/usr/local/probe"),
    "write to /var/tmp": lambda: writes("/var/tmp/probe"),
    "write to /sys": lambda: writes("/sys/probe"),
    "become root by setuid": set_user,
    "make a setuid program": setuid_program,
    "open a raw socket": raw_socket,
    "open a packet socket": packet_socket,
    "mount a file system": lambda: system_call("mount", b"none", b"/workspace", b"tmpfs", 0, None),
    "enter a new user namespace": lambda: system_call("unshare", 0x10000000),
    "trace the supervisor": lambda: system_call("ptrace", 16, 1, 0, 0),
    "read the supervisor's environment": lambda: reads("/proc/1/environ"),
    "read the supervisor's memory": lambda: reads("/proc/1/mem"),
    "kill the supervisor": kills_supervisor,
    "listen on the supervisor's port": lambda: takes_port(targets["supervisor_port"]),
    "use up the supervisor's connections": lambda: fills_supervisor(targets["supervisor_port"]),
    "use the supervisor's API": lambda: supervisor_api(targets["supervisor_port"]),
}


def attempt(action):
    try:
        return action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


{name: attempt(action) for name, action in ATTEMPTS.items()}
