"""Tries to leave a sandbox. Runs inside one; `targets` comes by the execution's context.

The result maps each attempt to what came of it: a text that begins with "open" where it worked.
"""
# ruff: noqa: F821

import ctypes
import fcntl
import os
import platform
import signal
import socket
import struct
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
# System calls without a function in the C library. Those of the first line have the same number everywhere.
NUMBERS = {"pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_open": 434, "pidfd_getfd": 438} | (
    {"userfaultfd": 323, "perf_event_open": 298, "bpf": 321, "keyctl": 250, "kcmp": 312}
    if platform.machine() == "x86_64"
    else {"userfaultfd": 282, "perf_event_open": 241, "bpf": 280, "keyctl": 219, "kcmp": 272}
)
PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE = 0, 16, 0x4206
FIOSETOWN, TIOCSTI, F_SETOWN_EX, PRIO_USER = 0x8901, 0x5412, 15, 2


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
    """Call a function of the C library, or a system call by its number."""
    ctypes.set_errno(0)
    call = getattr(LIBC, name) if name not in NUMBERS else lambda *each: LIBC.syscall(NUMBERS[name], *each)
    if call(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "open"


def directs_signals(change):
    """Makes process 1 the owner of a socket, or gives the socket signals, by one of the ways to do so."""
    left, right = socket.socketpair()
    with left, right:
        change(left)
    return "open"


def pushes_input():
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, TIOCSTI, b"x")
    return f"open: {master}"


def signals_by_folder():
    """The folder of a process in /proc is a descriptor of the process."""
    folder = os.open("/proc/1", os.O_RDONLY | os.O_DIRECTORY)
    return system_call("pidfd_send_signal", folder, 0, None, 0)


def memory_of_supervisor(call):
    """Reads or writes one byte of process 1, at an address that this process uses too: both run the same program."""
    buffer = ctypes.create_string_buffer(1)
    local = struct.pack("QQ", ctypes.addressof(buffer), 1)
    remote = struct.pack("QQ", ctypes.cast(LIBC.getpid, ctypes.c_void_p).value, 1)
    return system_call(call, 1, local, 1, remote, 1, 0)


def sockets_of_supervisor():
    names = [name for name in os.listdir("/proc/1/fd") if os.readlink(f"/proc/1/fd/{name}").startswith("socket:")]
    for name in names:
        os.close(os.open(f"/proc/1/fd/{name}", os.O_RDWR))
    return f"open: {len(names)}"


def abstract_sockets():
    """Connects to every socket without a file in this network namespace."""
    names = [line.split()[7] for line in Path("/proc/net/unix").read_text().splitlines()[1:] if len(line.split()) > 7]
    for name in names:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(name.replace("@", "\0", 1))
    if not names:
        raise PermissionError("there is none")
    return f"open: {names}"


def setuid_from_memory():
    """Runs a program from memory that has the bits of setuid, as the user root if it can have it."""
    descriptor = os.memfd_create("program", 0)
    os.write(descriptor, Path("/usr/bin/id").read_bytes())
    os.fchown(descriptor, 0, 0)
    os.fchmod(descriptor, 0o4755)
    return "open"


def kills_everything():
    """Leaves only processes that may not be killed. Each of the code's own has ended before."""
    os.kill(-1, signal.SIGKILL)
    with open("/proc/1/comm") as file:
        raise PermissionError(f"{file.read().strip() and 'the supervisor'} lives on")


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
    "trace the supervisor": lambda: system_call("ptrace", PTRACE_ATTACH, 1, 0, 0),
    "read the supervisor's environment": lambda: reads("/proc/1/environ"),
    "read the supervisor's memory": lambda: reads("/proc/1/mem"),
    "write the supervisor's memory": lambda: open("/proc/1/mem", "r+b", buffering=0).close() or "open",
    "read the supervisor's memory by process_vm_readv": lambda: memory_of_supervisor("process_vm_readv"),
    "write the supervisor's memory by process_vm_writev": lambda: memory_of_supervisor("process_vm_writev"),
    "open the supervisor's sockets": sockets_of_supervisor,
    "take a descriptor of the supervisor": lambda: system_call("pidfd_getfd", 0, 0, 0),
    "compare with the supervisor's descriptors": lambda: system_call("kcmp", os.getpid(), 1, 0, 0, 0),
    "get a handle of the supervisor": lambda: system_call("pidfd_open", 1, 0),
    "trace the supervisor by PTRACE_SEIZE": lambda: system_call("ptrace", PTRACE_SEIZE, 1, 0, 0),
    "be traced by the supervisor": lambda: system_call("ptrace", PTRACE_TRACEME, 0, 0, 0),
    "kill the supervisor": kills_supervisor,
    "kill every process": kills_everything,
    "signal the supervisor by its folder in /proc": signals_by_folder,
    "signal the supervisor by F_SETOWN": lambda: directs_signals(lambda each: fcntl.fcntl(each, fcntl.F_SETOWN, 1)),
    "signal the supervisor by F_SETOWN_EX": lambda: directs_signals(
        lambda each: fcntl.fcntl(each, F_SETOWN_EX, struct.pack("ii", 1, 1))
    ),
    "signal the supervisor by FIOSETOWN": lambda: directs_signals(
        lambda each: fcntl.ioctl(each, FIOSETOWN, struct.pack("i", 1))
    ),
    "turn signals of a descriptor on": lambda: directs_signals(
        lambda each: fcntl.fcntl(each, fcntl.F_SETFL, os.O_ASYNC)
    ),
    "push input into a terminal": pushes_input,
    "lower the supervisor's priority": lambda: system_call("setpriority", PRIO_USER, 0, 19),
    "make system calls by io_uring": lambda: system_call("io_uring_setup", 8, ctypes.create_string_buffer(120)),
    "handle page faults by userfaultfd": lambda: system_call("userfaultfd", 1),
    "load a BPF program": lambda: system_call("bpf", 0, ctypes.create_string_buffer(120), 120),
    "count events of the kernel": lambda: system_call(
        "perf_event_open", ctypes.create_string_buffer(120), 0, -1, -1, 0
    ),
    "use the kernel's keyring": lambda: system_call("keyctl", 0, -3, 0),
    "connect to abstract sockets": abstract_sockets,
    "run a setuid program from memory": setuid_from_memory,
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
