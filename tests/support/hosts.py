"""Several hosts on one machine: network namespaces on a switch of their own, or, without those, loopback.

    async with hosts(tmp_path, "a", "b", "c") as net:
        hub = await nats_server(net["a"])
        node = await up(net["b"], "--nats", await net.way("b", "a", hub.port), "--node", "b")
        await net.cut("b", How.SILENT); ...; await net.heal("b")

A namespace has an address, a loopback, ports and a firewall of its own, so what runs there is as far from the
rest as another machine is. Loopback hosts share all that, and are joined by proxies that can be cut: a test
says so by a warning (`NoNamespaces`). Nothing is left behind: programs are ended, namespaces removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from bakemesh.bus.server import find_server
from support.nats import TcpLink
from support.waiting import eventually

FAR = Path(__file__).with_name("far.py")
STOP_S = 40.0


class How(StrEnum):
    """How a host is cut off."""

    DOWN = "cable out"  # its interface loses the carrier
    SILENT = "black hole"  # everything is swallowed, nothing is reset
    RESET = "reset"  # everything is refused, both ways


class NoNamespaces(UserWarning):
    """Given when hosts are ports of the loopback because this machine has no network namespaces for us."""


class Program:
    """A process on a host. `lines` is what it wrote to stdout, `log` where its stderr goes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.process, self.log = name, process, log
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    def told(self) -> list[dict[str, Any]]:
        """Its lines that are JSON objects."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    async def said(self, check: Callable[[list[str]], Any], *, what: str, within: float = 60.0) -> Any:
        """The first true `check(lines)`. Fails where the program ends before."""

        def found() -> Any:
            if (result := check(self.lines)) or self.running:
                return result
            if not self._reading.done():
                return None  # it may have said it with its last breath
            raise AssertionError(f"{self.name} ended with {self.process.returncode}: {self.tail()}")

        return await eventually(found, what=f"{self.name}: {what}", within=within)

    async def event(self, name: str, *, within: float = 60.0) -> dict[str, Any]:
        """The first JSON line whose `event` is that."""

        def find(_: list[str]) -> Any:
            return next((one for one in self.told() if one.get("event") == name), None)

        found: dict[str, Any] = await self.said(find, what=f"event {name}", within=within)
        return found

    async def ended(self, *, within: float = STOP_S) -> int:
        """Its exit code."""
        async with asyncio.timeout(within):
            await self._reading
            return await self.process.wait()

    async def stop(self) -> int:
        """TERM, and its exit code."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """KILL."""
        if self.running:
            self.process.kill()
        await self.process.wait()

    def tail(self) -> str:
        """Its last words."""
        with contextlib.suppress(OSError):
            return "\n".join([*self.lines[-10:], self.log.read_text(errors="replace")[-3000:]])
        return "\n".join(self.lines[-10:])


class Wires(Protocol):
    """What joins hosts."""

    async def open(self, names: Sequence[str]) -> None: ...

    def prefix(self, host: str) -> list[str]: ...

    async def way(self, here: str, there: str, port: int) -> tuple[str, int]: ...

    async def cut(self, host: str, how: How) -> None: ...

    async def heal(self, host: str) -> None: ...

    async def close(self) -> None: ...


@dataclass
class Host:
    """One of them. `local`: its own address for what runs on it."""

    name: str
    folder: Path
    net: Net
    local: str = "127.0.0.1"
    programs: list[Program] = field(default_factory=list)

    async def spawn(self, name: str, *argv: str, env: dict[str, str] | None = None) -> Program:
        """Starts a program here."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *self.net.wires.prefix(self.name),
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(env or {})},
                cwd=self.folder,
                limit=2**20,
            )
        program = Program(f"{name} on {self.name}", process, log)
        self.programs.append(program)
        return program


@dataclass
class Net:
    """The hosts, by name."""

    wires: Wires
    hosts: dict[str, Host] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    async def way(self, here: str, there: str, port: int) -> str:
        """The URL under which a port of `there` is reached from `here`."""
        address, at = await self.wires.way(here, there, port)
        return f"nats://{address}:{at}"

    async def cut(self, host: str, how: How = How.DOWN) -> None:
        """Cuts a host off from all others."""
        await self.wires.cut(host, how)

    async def heal(self, host: str) -> None:
        """Joins it again."""
        await self.wires.heal(host)


class Namespaces:
    """A bridge in a namespace of its own, and a namespace a host, joined to it by a pair of interfaces."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(3)
        self._switch = f"bm{self._token}-sw"
        self._names: dict[str, tuple[str, str, str]] = {}  # host: namespace, port of the switch, address

    @staticmethod
    def possible() -> bool:
        """Whether this machine lets us have them. BAKEMESH_HOSTS=loopback: they are not wanted."""
        if os.environ.get("BAKEMESH_HOSTS") == "loopback":
            return False
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "bridge", "iptables"))):
            return False
        name = f"bm{secrets.token_hex(3)}-try"
        try:
            _run("ip", "netns", "add", name)
        except OSError:
            return False
        try:
            _run("ip", "-n", name, "link", "add", "br0", "type", "bridge")
        except OSError:
            return False
        finally:
            _run("ip", "netns", "del", name)
        return True

    async def open(self, names: Sequence[str]) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "br0", "up")
        for number, host in enumerate(names, 1):
            space, port, address = f"bm{self._token}-{host}", f"p{number}", f"10.77.0.{number}"
            self._names[host] = (space, port, address)
            _run("ip", "netns", "add", space)
            _run("ip", "-n", self._switch, *f"link add {port} type veth peer name eth0 netns {space}".split())
            _run("ip", "-n", self._switch, *f"link set {port} master br0 up".split())
            _run("ip", "-n", space, *f"addr add {address}/24 dev eth0".split())
            for device in ("lo", "eth0"):
                _run("ip", "-n", space, "link", "set", device, "up")

    def prefix(self, host: str) -> list[str]:
        return ["ip", "netns", "exec", self._names[host][0]]

    async def way(self, here: str, there: str, port: int) -> tuple[str, int]:
        return ("127.0.0.1" if here == there else self._names[there][2]), port

    async def cut(self, host: str, how: How) -> None:
        space, port, _ = self._names[host]
        match how:
            case How.DOWN:
                _run("ip", "-n", self._switch, "link", "set", port, "down")
            case How.SILENT:
                _run("bridge", "-n", self._switch, "link", "set", "dev", port, "state", "0")
            case How.RESET:
                for chain, side in (("INPUT", "-i"), ("OUTPUT", "-o")):
                    _run(
                        *("ip", "netns", "exec", space, "iptables", "-A", chain, side, "eth0", "-p", "tcp"),
                        *("-j", "REJECT", "--reject-with", "tcp-reset"),
                    )

    async def heal(self, host: str) -> None:
        space, port, _ = self._names[host]
        _run("ip", "netns", "exec", space, "iptables", "-F")
        _run("ip", "-n", self._switch, "link", "set", port, "up")
        _run("bridge", "-n", self._switch, "link", "set", "dev", port, "state", "3")

    async def close(self) -> None:
        for space in [self._switch, *(space for space, _, _ in self._names.values())]:
            with contextlib.suppress(OSError):
                for pid in _run("ip", "netns", "pids", space).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _run("ip", "netns", "del", space)


class Loopback:
    """Ports of the loopback, and a proxy for each way between two hosts."""

    def __init__(self) -> None:
        self._links: dict[tuple[str, str, int], TcpLink] = {}

    async def open(self, names: Sequence[str]) -> None:
        """Nothing is needed."""

    def prefix(self, host: str) -> list[str]:
        return []

    async def way(self, here: str, there: str, port: int) -> tuple[str, int]:
        if here == there:
            return "127.0.0.1", port
        if (link := self._links.get((here, there, port))) is None:
            link = self._links[here, there, port] = TcpLink(("127.0.0.1", port))
            await link.start()
        return "127.0.0.1", link.port

    async def cut(self, host: str, how: How) -> None:
        for (here, there, _), link in self._links.items():
            if host in (here, there):
                if how is How.SILENT:
                    link.stall()
                else:
                    await link.cut()

    async def heal(self, host: str) -> None:
        for (here, there, _), link in self._links.items():
            if host in (here, there):
                await link.heal()

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@asynccontextmanager
async def hosts(folder: Path, *names: str) -> AsyncIterator[Net]:
    """Hosts of these names. What they said is shown where the test fails inside."""
    wires: Wires
    if Namespaces.possible():
        wires = Namespaces()
    else:
        warnings.warn(NoNamespaces("hosts are ports of the loopback, joined by proxies"), stacklevel=3)
        wires = Loopback()
    net = Net(wires)
    try:
        await wires.open(names)
        for name in names:
            (folder / name).mkdir(exist_ok=True)
            net.hosts[name] = Host(name, folder / name, net)
        yield net
    except BaseException:
        for host in net.hosts.values():
            for program in host.programs:
                print(f"--- {program.name} (exit {program.process.returncode})\n{program.tail()}")
        raise
    finally:
        try:
            for host in net.hosts.values():  # before the wires go, so that all end as they should
                for program in reversed(host.programs):
                    await _end(program)
        finally:
            await wires.close()


async def _end(program: Program) -> None:
    try:
        await program.stop()
    except TimeoutError:
        await program.kill()


# -- what runs on them


@dataclass
class Server:
    """A nats-server on a host, its port for clients and the one for leaves."""

    program: Program
    port: int
    leaf_port: int
    routes: tuple[int, Sequence[str]] | None = None


def free(host: Host, wished: int) -> int:
    """A port for a server: the wished one where the host has its own; on the loopback any free one."""
    if isinstance(host.net.wires, Namespaces):
        return wished
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def nats_server(
    host: Host,
    *,
    name: str = "hub",
    route: tuple[int, Sequence[str]] | None = None,
    port: int | None = None,
    leaf_port: int | None = None,
) -> Server:
    """The mesh's server of docs/operate.md. `route`: a cluster's port here, and all its routes."""
    port, leaf_port = port or free(host, 4222), leaf_port or free(host, 7422)
    config = host.folder / f"{name}.conf"
    lines = [
        f'server_name: {name}\nlisten: "0.0.0.0:{port}"\nmax_payload: 8388608',
        'ping_interval: "2s"\nping_max: 3',
        f'jetstream {{ store_dir: "{host.folder / name}", domain: hub }}',
        f'leafnodes {{ listen: "0.0.0.0:{leaf_port}", no_advertise: true }}',
    ]
    if route is not None:
        listed = ", ".join(f'"{url}"' for url in route[1])
        lines.append(
            f'cluster {{ name: hub, listen: "0.0.0.0:{route[0]}", no_advertise: true, routes: [{listed}] }}'
        )
    config.write_text("\n".join(lines) + "\n")
    log = host.folder / f"{name}-server.log"
    program = await host.spawn(name, str(find_server()), "-c", str(config), "-l", str(log))
    await program.said(
        lambda _: log.exists() and "Server is ready" in log.read_text(errors="replace"),
        what="the server ready",
    )
    return Server(program, port, leaf_port, route)


async def up(
    host: Host, *flags: str, name: str = "up", python: str = sys.executable, env: dict[str, str] | None = None
) -> Program:
    """A node: `bakemesh up` with these flags, its state on the host; ready when this returns."""
    state = host.folder / "state"
    argv = (python, "-m", "bakemesh.cli", "up", "--state", str(state), *flags)
    program = await host.spawn(name, *argv, env=env)
    await program.said(lambda lines: any(line.startswith("up ") for line in lines), what="ready")
    return program


def local_bus(host: Host) -> str:
    """Where the embedded server of the `up` on this host is, for what runs there too."""
    found: dict[str, str] = json.loads((host.folder / "state" / "up.json").read_text())
    return found["nats"]


async def far(host: Host, name: str, **order: Any) -> Program:
    """A Supervisor on this host, by the SDK: see `far.py` for the order."""
    return await host.spawn(name, sys.executable, "-P", str(FAR), json.dumps({"name": name, **order}))
