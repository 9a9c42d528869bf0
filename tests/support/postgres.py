"""A PostgreSQL server of Debian's package, on a port of loopback or of the node."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.support.pace import paced

_SECONDS: Final = paced(30)
_INSTALLED: Final = Path("/usr/lib/postgresql")


def find_programs() -> Path | None:
    """Return the folder with the programs of the newest version, or None."""
    versions = [folder for folder in _INSTALLED.glob("*/bin") if (folder / "initdb").exists()]
    return max(versions, key=lambda folder: int(folder.parent.name), default=None)


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A server, which can be stopped and started again."""

    programs: Path
    folder: Path
    port: int
    address: str = "127.0.0.1"
    """Address where it listens, and that its clients use."""
    certificate: str = ""
    """Certificate with its key, in PEM. Empty means no TLS."""

    @property
    def url(self) -> str:
        """URL of its database."""
        return f"postgresql://postgres@{self.address}:{self.port}/postgres"

    @classmethod
    @asynccontextmanager
    async def running(cls, address: str = "127.0.0.1", *, certificate: str = "") -> AsyncIterator["Postgres"]:
        """Create a server in a new folder, and delete it afterwards. It trusts all who reach the address."""
        programs = find_programs()
        assert programs is not None
        with socket.create_server((address, 0)) as free:
            port = free.getsockname()[1]
        folder = Path(mkdtemp(prefix="postgres-"))
        server = cls(programs=programs, folder=folder, port=port, address=address, certificate=certificate)
        try:
            if os.getuid() == 0:  # the server refuses to run as root
                shutil.chown(server.folder, "postgres")
            if certificate:
                server._pem.write_text(certificate)
                server._pem.chmod(0o600)
                if os.getuid() == 0:
                    shutil.chown(server._pem, "postgres")
            await server._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")
            with (server.folder / "data/pg_hba.conf").open("a") as file:
                file.write("host all all all trust\n")
            await server.start()
            try:
                yield server
            finally:
                await server.crash()
        finally:
            shutil.rmtree(server.folder, ignore_errors=True)

    async def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        await self._run("createdb", "-h", self.address, "-p", str(self.port), "-U", "postgres", name)
        return f"postgresql://postgres@{self.address}:{self.port}/{name}"

    async def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses={self.address} -F"
        if self.certificate:
            options += f" -c ssl=on -c ssl_cert_file={self._pem} -c ssl_key_file={self._pem}"
        await self._run("pg_ctl", "start", "-w", "-t", str(_SECONDS), "-o", options, "-l", str(self.folder / "log"))

    async def crash(self) -> None:
        """End it and its connections at once, so that it recovers when it starts; do nothing if it does not run."""
        if (self.folder / "data/postmaster.pid").exists():
            await self._run("pg_ctl", "stop", "-w", "-t", str(_SECONDS), "-m", "immediate")

    @property
    def _pem(self) -> Path:
        return self.folder / "server.pem"

    async def _run(self, program: str, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            self.programs / program,
            *arguments,
            cwd=self.folder,
            env=os.environ | {"PGDATA": str(self.folder / "data")},
            user="postgres" if os.getuid() == 0 else None,
            group="postgres" if os.getuid() == 0 else None,
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(2 * _SECONDS):
            assert await process.wait() == 0, f"{program} failed"
