"""A forward proxy of a company: Squid of Debian's package on loopback, which requires authentication."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.support.pace import paced
from tests.support.ports import free_port
from tests.support.until import until_answered

PROGRAM: Final = Path("/usr/sbin/squid")
USER: Final = "mcp exec"
PASSWORD: Final = "p:ss/word@1"
"""Characters that a URL must encode."""
REFUSED: Final = "10.66.0.1"
"""An address that the proxy's own rules refuse."""
_CONFIGURATION: Final = """\
http_port 127.0.0.1:{port}
hosts_file {folder}/hosts
pid_filename none
netdb_filename none
coredump_dir {folder}
cache_log {folder}/cache.log
access_log stdio:{folder}/access.log
logfile_rotate 0
cache deny all
cache_mem 4 MB
max_filedescriptors 1024
shutdown_lifetime 0 seconds
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/users
auth_param basic children 1
acl known proxy_auth REQUIRED
acl forbidden dst {refused}
http_access deny forbidden
http_access allow known
http_access deny all
"""


@dataclass(frozen=True, kw_only=True)
class ForwardProxy:
    """A running proxy."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        """URL without credentials."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url_with_credentials(self) -> str:
        """URL with them, encoded."""
        return f"http://mcp%20exec:p%3Ass%2Fword%401@127.0.0.1:{self.port}"

    def list_requests(self) -> list[str]:
        """Return method, target and status of each request so far, such as `CONNECT api.example:443 200`."""
        log = self.folder / "access.log"
        lines = (line.split() for line in (log.read_text() if log.exists() else "").splitlines())
        return [f"{words[5]} {words[6]} {words[3].rpartition('/')[2]}" for words in lines]

    def list_targets(self) -> set[str]:
        """Return the targets of requests that the proxy took."""
        return {words.split()[1] for words in self.list_requests() if words.endswith(" 200")}


def _hash_password() -> str:
    command = ["openssl", "passwd", "-apr1", PASSWORD]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@asynccontextmanager
async def running_proxy(names: Mapping[str, str]) -> AsyncIterator[ForwardProxy]:
    """Run a proxy that resolves these names to addresses. A tunnel is logged when it is closed."""
    proxy = ForwardProxy(port=free_port(), folder=Path(mkdtemp(prefix="squid-")))
    (proxy.folder / "users").write_text(f"{USER}:{_hash_password()}")
    (proxy.folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names.items()))
    (file := proxy.folder / "squid.conf").write_text(
        _CONFIGURATION.format(port=proxy.port, folder=proxy.folder, refused=REFUSED)
    )
    if os.getuid() == 0:  # the proxy changes its user
        for path in (proxy.folder, *proxy.folder.iterdir()):
            shutil.chown(path, "proxy")
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "-N", "-f", file, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )

    async def accepts() -> bool | None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        except OSError:
            assert process.returncode is None, (proxy.folder / "cache.log").read_text()
            return None
        writer.close()
        return True

    try:
        await until_answered(accepts, every=0.05, seconds=paced(30))
        yield proxy
    finally:
        process.kill()
        await process.wait()
        shutil.rmtree(proxy.folder, ignore_errors=True)
