"""Two programs for a sandbox: one leaves all behind that code can leave, one looks for all of it.

They are in Python only, which can fork, start programs and make any system call; `hostile_code` has those of each
language.

What `LOOK` returns after `LEAVE` and cleaning must equal what it returned before. `LEAVE` returns what it could do to
the processes and places of the sandbox that are not its own. `WITHOUT_MAIN_THREAD` leaves processes that look dead,
and `WAKE` an interpreter that tries everything to go on after it was stopped.
"""

REFUSED = {"EPERM", "EACCES", "ESRCH", "ENOSYS"}
"""Outcomes of calls that reach nothing."""

HIDE = r'''
import ctypes, os, signal, threading, time
EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
def write_without_main_thread(path):
    """Write to a file for ever, in a process that looks dead: its main thread has ended."""
    def write():
        while True:
            try:
                with open(path, "a") as file:
                    file.write("x")
            except OSError:
                pass
            time.sleep(0.001)
    threading.Thread(target=write, daemon=True).start()
    ctypes.CDLL(None).syscall(EXIT, 0)
def wait_for_end_of_main_thread(pid):
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
'''

WITHOUT_MAIN_THREAD = (
    HIDE
    + r'''
def fork(path, *, group):
    """Fork a process that looks dead. If it has a group of its own, the kernel wakes it when this process ends."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if group:
            os.setpgid(0, 0)
        write_without_main_thread(path)
    wait_for_end_of_main_thread(pid)
    return pid
path = os.environ["TMPDIR"] + "/left"
[fork(path, group=False), fork(path, group=True)]
'''
)
"""Leaves processes whose main thread has ended, and returns their numbers."""

WAKE = r"""
import contextlib, ctypes, fcntl, os, pty, signal, struct, termios, threading, time
def work():
    while True:
        pass
def ignore(number, frame):
    pass
for each in (signal.SIGCONT, signal.SIGHUP):
    signal.signal(each, ignore)
libc, attempts = ctypes.CDLL(None), {}
# a timer of the kernel, and the end of the parent
timer_create, prctl = {"x86_64": (222, 157), "aarch64": (107, 167)}[os.uname().machine]
event = struct.pack("=QiiQQQQQQ", 0, signal.SIGCONT, 0, *[0] * 6)
attempts["timer"] = libc.syscall(timer_create, time.CLOCK_MONOTONIC, event, ctypes.create_string_buffer(8))
attempts["parent"] = libc.syscall(prctl, 1, int(signal.SIGCONT), 0, 0, 0)
# a terminal of this session hangs up when the process that holds its other end is killed
holder, terminal = pty.openpty()
with contextlib.suppress(OSError):
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    attempts["terminal"] = os.tcgetpgrp(terminal)
if os.fork() == 0:
    while True:
        signal.pause()
os.close(holder)
# an orphaned group of processes continues when its last parent is killed, here a child that does not end
if os.fork() == 0:
    if os.fork() == 0:
        os.setpgid(0, 0)
        work()
    while True:
        signal.pause()
threading.Thread(target=work, daemon=True).start()
used = time.process_time()
attempts
"""
"""Tries to let the interpreter of a session work on between executions, with its processor time so far in `used`."""

LEAVE = (
    HIDE
    + r'''
import builtins, contextlib, ctypes, errno, gc, json, os, random, resource, signal, socket, struct, sys, threading, time
from multiprocessing import shared_memory

work, temporary = os.getcwd(), os.environ["TMPDIR"]
template, libc = os.getppid(), ctypes.CDLL(None, use_errno=True)
with open(f"/proc/{template}/stat") as file:
    supervisor = int(file.read().rpartition(")")[2].split()[1])
outcome, left = {}, []

def attempt(name, call, *arguments):
    """Note how a call ended: by an error, or not."""
    try:
        done = call(*arguments)
        failed = isinstance(done, int) and done == -1
        outcome[name] = errno.errorcode.get(ctypes.get_errno(), "error") if failed else "done"
    except OSError as error:
        outcome[name] = errno.errorcode.get(error.errno, "error")
    except ImportError:
        outcome[name] = "missing"

def leave(path, data=b"left"):
    with contextlib.suppress(OSError):
        with open(path, "wb") as file:
            file.write(data)
        left.append(path)

def writable_mounts():
    for line in open("/proc/self/mountinfo"):
        path = line.split(" ")[4]
        if not path.startswith(("/proc", "/sys")) and os.access(path, os.W_OK):
            yield path

# the other processes of the sandbox: its supervisor and the template of its interpreters
def others():
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == os.getuid() or int(name) == supervisor:
                    yield int(name)
known = sorted(others())

# files of every kind, in every place
places = [work, temporary, *(writable_mounts() if supervisor == 1 else [])]
for place in places:
    if not os.path.isdir(place):
        leave(place)
        attempt(f"attribute of {place}", os.setxattr, place, "user.left", b"left")
        continue
    leave(f"{place}/left")
    for name in ("new\nline", "quo'te\"", "sp ace", "-rf", "...", "\udcff", "n" * 255):
        leave(f"{place}/{name}")
    attempt(f"attribute of {place}", os.setxattr, place, "user.left", b"left")
    with contextlib.suppress(OSError):
        os.symlink("/etc", f"{place}/link")
        os.mkfifo(f"{place}/fifo")
        os.link(f"{place}/left", f"{place}/hard")
    with contextlib.suppress(OSError):
        socket.socket(socket.AF_UNIX).bind(f"{place}/socket")
        for mode in (0, 0o111, 0o444, 0o555):
            os.makedirs(f"{place}/mode{mode}/inner")
            leave(f"{place}/mode{mode}/inner/file")
            leave(f"{place}/mode{mode}/file")
            os.chmod(f"{place}/mode{mode}/inner", mode)
            os.chmod(f"{place}/mode{mode}", mode)
        os.makedirs(f"{place}/many")
        for number in range(300):
            leave(f"{place}/many/{number}")
        os.chdir(place)
        for _ in range(270 if place in (work, temporary) else 10):
            os.mkdir("deep" * 4)
            os.chdir("deep" * 4)
        open("bottom", "w").close()
    os.chdir(work)
if supervisor == 1 and os.access("/dev/shm", os.W_OK):
    shared = shared_memory.SharedMemory(create=True, size=4096, name="left-shared")
for name in ("json", "random", "client", "sitecustomize", "usercustomize", "encodings"):
    leave(f"{work}/{name}.py", b"raise SystemExit('a module of an earlier run')")
os.makedirs(f"{work}/.local/lib/python3.11/site-packages", exist_ok=True)
leave(f"{work}/.local/lib/python3.11/site-packages/usercustomize.py", b"raise SystemExit('left')")
leave(f"{work}/servers/__init__.py", b"left = 1")

# what would outlive processes in the kernel
attempt("System V shared memory", libc.shmget, 4711, 4096, 0o1666)
attempt("System V semaphores", libc.semget, 4711, 1, 0o1666)
attempt("System V queue", libc.msgget, 4711, 0o1666)
mq_open, add_key = {"x86_64": (240, 248), "aarch64": (180, 217)}[os.uname().machine]
attempt("POSIX queue", libc.syscall, mq_open, b"left", os.O_CREAT | os.O_RDWR, 0o666, None)
attempt("key", libc.syscall, add_key, b"user", b"left", b"left", 4, -4)

# what would let stopped code go on
def clone(flags):
    pid = libc.syscall(clone_call, flags, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid
timer_create, clone_call, prctl = {"x86_64": (222, 56, 157), "aarch64": (107, 220, 167)}[os.uname().machine]
event = struct.pack("=QiiQQQQQQ", 0, signal.SIGCONT, 0, *[0] * 6)
attempt("timer", libc.syscall, timer_create, time.CLOCK_MONOTONIC, event, ctypes.create_string_buffer(8))
attempt("signal of the parent's end", libc.syscall, prctl, 1, int(signal.SIGCONT), 0, 0, 0)
attempt("signal of a child's end", clone, int(signal.SIGCONT))

# what would hide open files: a thread with a table of its own, which shares memory and signal handlers only
stack = ctypes.create_string_buffer(1 << 16)
top, pause = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 15)), ctypes.cast(libc.pause, ctypes.c_void_p)
attempt("thread with open files of its own", libc.clone, pause, top, 0x10900, None)
attempt("open files of its own", libc.syscall, 436, 1000, 1001, 2)

def read_file(path):
    with open(path, "rb") as file:
        return len(file.read(1) or b"") - 1
def write_memory(pid):
    with open(f"/proc/{pid}/mem", "r+b", 0) as file:
        file.seek(id(outcome))
        file.write(b"x")
word = ctypes.create_string_buffer(8)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(word), 8)
def write_open_files(pid):
    """Write to each open file that can be opened by its name in /proc, as gVisor allows, but for /dev/null."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}") == "/dev/null":
                continue
            with open(f"/proc/{pid}/fd/{name}", "r+b", 0) as file:
                file.write(b"left")
                outcome[f"open file {os.readlink(f'/proc/{pid}/fd/{name}')} of {pid}"] = "written"
for number, pid in enumerate(known):
    who = f"process {number}"
    attempt(f"{who}: kill", os.kill, pid, signal.SIGKILL)
    attempt(f"{who}: stop", os.kill, pid, signal.SIGSTOP)
    if pid != 1:
        attempt(f"{who}: kill its group", os.kill, -pid, signal.SIGKILL)
    attempt(f"{who}: thread signal", libc.tgkill, pid, pid, signal.SIGKILL)
    attempt(f"{who}: pidfd", os.pidfd_open, pid)
    attempt(f"{who}: limits", resource.prlimit, pid, resource.RLIMIT_NOFILE, (3, 3))
    attempt(f"{who}: priority", os.setpriority, os.PRIO_PROCESS, pid, 19)
    attempt(f"{who}: priority of its group", os.setpriority, os.PRIO_PGRP, pid, 19)
    attempt(f"{who}: affinity", os.sched_setaffinity, pid, {0})
    attempt(f"{who}: trace", libc.ptrace, 16, pid, 0, 0)
    attempt(f"{who}: seize", libc.ptrace, 0x4206, pid, 0, 0)
    attempt(f"{who}: read memory", libc.process_vm_readv, pid, vector, 1, vector, 1, 0)
    attempt(f"{who}: write memory", libc.process_vm_writev, pid, vector, 1, vector, 1, 0)
    attempt(f"{who}: memory file", read_file, f"/proc/{pid}/mem")
    attempt(f"{who}: write memory file", write_memory, pid)
    attempt(f"{who}: maps", read_file, f"/proc/{pid}/maps")
    attempt(f"{who}: environment", read_file, f"/proc/{pid}/environ")
    attempt(f"{who}: open files", os.listdir, f"/proc/{pid}/fd")
    attempt(f"{who}: working folder", os.readlink, f"/proc/{pid}/cwd")
    with contextlib.suppress(OSError):
        write_open_files(pid)
    for name in ("oom_score_adj", "comm", "coredump_filter", "timerslack_ns", "clear_refs", "uid_map", "attr/current"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "w") as file:
            file.write("77")
if len(known) > 1:
    attempt("all processes: kill", os.kill, -1, signal.SIGKILL)

# what is inherited: open files, their contents, limits, dispositions, timers
for name in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):
        if "memfd" in os.readlink(f"/proc/self/fd/{name}"):
            os.ftruncate(int(name), 4096)
            os.pwrite(int(name), b"left", 0)
for number in range(20):
    os.open("/dev/null", os.O_RDONLY)
with contextlib.suppress(OSError):
    os.lseek(0, 77, os.SEEK_SET)
os.environ["LEFT"] = os.environ["PATH"] = "left"
sys.path[:] = ["/left"]
sys.argv.append("left")
builtins.left, builtins.print, json.loads, sys.modules["client"] = 1, None, None, None
random.seed(1)
sys.setrecursionlimit(200)
gc.disable()
os.umask(0o777)
os.nice(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGHUP})
signal.setitimer(signal.ITIMER_REAL, 3600)
with contextlib.suppress(OSError):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

# processes that do not want to end: orphans of sessions of their own, one that forks for ever, threads
def daemon(work):
    if os.fork() == 0:
        os.setsid()
        for each in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(each, signal.SIG_IGN)
        if os.fork() == 0:
            try:
                work()
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()
def listen():
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0left")
    abstract.listen()
    server = socket.socket()
    server.bind(("127.0.0.1", 47113))
    server.listen()
    signal.pause()
def spin():
    while True:
        pass
def hop():
    while True:
        if os.fork() != 0:
            os._exit(0)
def write():
    write_without_main_thread(f"{temporary}/left-by-a-thread")
def write_in_group():
    if os.fork() == 0:
        os.setpgid(0, 0)
        write()
    signal.pause()
daemon(listen)
daemon(spin)
daemon(write)
daemon(write_in_group)
daemon(signal.pause)
if supervisor == 1:
    daemon(hop)
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
{"outcome": outcome, "left": len(left), "others": len(known)}
'''
)

LOOK = r"""
import builtins, contextlib, gc, json, os, random, resource, signal, socket, sys, threading
with open(f"/proc/{os.getppid()}/stat") as file:
    supervisor = int(file.read().rpartition(")")[2].split()[1])
found = {}

# every file in every place that can be written to
def entries(place):
    listed, folders = [], [place]
    while folders and len(listed) < 50:
        try:
            with os.scandir(folders.pop()) as scan:
                for entry in scan:
                    listed.append(ascii(entry.path))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError as error:
            listed.append(f"{error.errno}")
    return sorted(listed)
def attributes(path):
    try:
        return os.listxattr(path)
    except OSError:
        return []
places = {os.getcwd(), os.environ["TMPDIR"], os.environ["HOME"]}
if supervisor == 1:
    for line in open("/proc/self/mountinfo"):
        path = line.split(" ")[4]
        if not path.startswith(("/proc", "/sys")) and os.access(path, os.W_OK):
            places.add(path)
found["files"] = {place: entries(place) if os.path.isdir(place) else os.stat(place).st_size for place in sorted(places)}
found["attributes"] = {place: attributes(place) for place in sorted(places)}
found["modes"] = {place: os.stat(place).st_mode for place in sorted(places)}

def processes():
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid in (0, os.getuid()):
                with open(f"/proc/{name}/stat") as file:
                    text = file.read()
                parent = int(text.rpartition(")")[2].split()[1])
                if int(name) != os.getpid() and (supervisor == 1 or parent in (supervisor, os.getppid())):
                    yield text.partition("(")[2].rpartition(")")[0]
found["processes"] = sorted(processes())
found["threads"] = [len(os.listdir("/proc/self/task")), threading.active_count()]
with open("/proc/self/status") as file:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
found["signals"] = {name: status.get(name) for name in ("SigBlk", "SigIgn", "SigPnd", "ShdPnd")}
found["handlers"] = {each.name: repr(signal.getsignal(each)).partition(" at ")[0] for each in signal.Signals}
found["timer"] = signal.getitimer(signal.ITIMER_REAL)
found["environment"] = dict(os.environ)
kinds = [name for name in dir(resource) if name.startswith("RLIMIT_")]
found["limits"] = {name: resource.getrlimit(getattr(resource, name)) for name in kinds}
def read_number(name):
    try:
        with open(f"/proc/self/{name}") as file:
            return file.read()
    except OSError:
        return ""
found["settings"] = {name: read_number(name) for name in ("oom_score_adj", "coredump_filter", "comm", "timerslack_ns")}
found["nice"], found["affinity"] = os.nice(0), sorted(os.sched_getaffinity(0))
found["umask"] = os.umask(0)
os.umask(found["umask"])
found["folder"], found["session"] = os.getcwd(), os.getsid(0) == os.getpid() == os.getpgid(0)

# the interpreter
found["names"] = sorted(globals().keys() - {"found", "supervisor", "file"})
found["builtins"] = sorted(vars(builtins)), callable(print), callable(json.loads)
found["modules"] = sorted(name for name, module in sys.modules.items() if module is not None)
found["path"], found["argv"] = sys.path, sys.argv
found["finders"] = [repr(each).partition(" at ")[0] for each in sys.meta_path]
found["interpreter"] = sys.getrecursionlimit(), gc.isenabled(), sys.gettrace() is None, sys.getprofile() is None
import client
found["client"] = client.__file__

# open files, without their numbers, and what they have in them
def open_files():
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            size = os.fstat(int(name)).st_size if "memfd" in target else 0
            yield f"{target.partition(':')[0]} {size}"
found["open files"] = sorted(each for each in open_files() if "/proc/" not in each)
found["offset"] = os.lseek(0, 0, os.SEEK_CUR)
def connect(family, address):
    try:
        with socket.socket(family) as client_socket:
            client_socket.connect(address)
        return "connected"
    except OSError as error:
        return "refused"
found["abstract socket"] = connect(socket.AF_UNIX, "\0left")
found["port"] = connect(socket.AF_INET, ("127.0.0.1", 47113))
{"found": json.loads(json.dumps(found)), "random": random.random(), "pid": os.getpid()}
"""
