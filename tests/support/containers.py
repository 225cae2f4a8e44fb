"""The images of Dockerfile and compose.yaml, made without a registry, and the composition running.

    with composition() as running:
        running.healthy("alpha"); running.url; running.kill("beta")

Bases are made once and kept by the daemon (`compose/local`); the node's image is made from this checkout each
time. Without a daemon the tests are skipped, saying so; where BAKEMESH_CONTAINERS is `required`, they fail.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus.server import find_server

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "compose" / "local"
BASE, NATS, NODE = "bakemesh-test/python:bookworm", "bakemesh-test/nats:2", "bakemesh-test/node:checkout"
ENGINE = "bakemesh-test/engine:checkout"
CONTEXT = (
    "pyproject.toml",
    "README.md",
    "Dockerfile",
    ".dockerignore",
    "protocol",
    "libs",
    "services",
    "compose",
    "deploy/engine",
)
REQUIRED = os.environ.get("BAKEMESH_CONTAINERS") == "required"
SERVICES = ("nats", "alpha", "beta", "gamma")


def need_docker() -> None:
    """Skips the test where no daemon answers or a tool is missing; fails it where containers are required."""
    lacks = [tool for tool in ("docker", "debootstrap") if shutil.which(tool) is None]
    lacks += [] if compose_command() else ["docker-compose"]
    if lacks:
        reason = f"needs {', '.join(lacks)}: apt-get install docker.io debootstrap docker-compose"
    elif subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False).returncode:
        reason = "no docker daemon answers: start dockerd, or let this user use it"
    elif os.geteuid() and not _has(BASE):
        reason = f"{BASE} is not there, and debootstrap makes it for root alone: run it once as root"
    else:
        return
    if REQUIRED:
        pytest.fail(f"BAKEMESH_CONTAINERS=required, and {reason}")
    pytest.skip(reason)


def compose_command() -> list[str]:
    """Compose, the plugin or the program."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = ["docker", "compose"]
    with contextlib.suppress(OSError):
        if not subprocess.run([*plugin, "version"], capture_output=True, timeout=60, check=False).returncode:
            return plugin
    return []


def _has(image: str) -> bool:
    done = subprocess.run(["docker", "image", "inspect", image], capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def run(*argv: str, within: float = 120, **more: Any) -> str:
    """A command that must succeed; its stdout."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=within, check=False, **more)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def images() -> None:
    """All three that a composition needs; one test process at a time makes them."""
    with _making() as cache:
        run(str(LOCAL / "wheels.sh"), sys.executable, str(cache / "wheels"), within=300)
        _build(NODE, "node", cache / "wheels")


def engine_image() -> None:
    """The one with llama.cpp, of the wheel that `make wheel` made; without it the test is skipped, or fails
    where containers are required."""
    found = sorted((ROOT / "run" / "wheels").glob("llama_cpp_python-*.whl"))
    if not found:
        reason = "no wheel of the engine in run/wheels, and building one takes long: make wheel"
        if REQUIRED:
            pytest.fail(f"BAKEMESH_CONTAINERS=required, and {reason}")
        pytest.skip(reason)
    with _making() as cache:
        wheels = cache / "engine"
        wheels.mkdir(exist_ok=True)
        shutil.copy2(found[-1], wheels)
        run(str(LOCAL / "wheels.sh"), sys.executable, str(wheels), within=300)
        _build(ENGINE, "engine", wheels)


@contextlib.contextmanager
def _making() -> Iterator[Path]:
    """The bases are there, and nobody else makes images; a folder that is kept."""
    cache = ROOT / "run" / "containers"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(str(LOCAL / "base.sh"), BASE, NATS, str(find_server()), within=900)
        yield cache


def _build(tag: str, target: str, wheels: Path) -> None:
    """An image of this checkout."""
    from testcontainers.core.image import DockerImage

    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        for name in CONTEXT:
            there = ROOT / name
            if there.is_dir():
                shutil.copytree(there, context / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(there, context / name)
        shutil.copytree(wheels, context / "wheels")
        DockerImage(context, tag=tag, clean_up=False, target=target, buildargs={"BASE": BASE}).build()


@dataclass
class Composition:
    """compose.yaml, up."""

    project: str
    port: int
    folder: Path
    environment: dict[str, str]
    profiles: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The server, from the host."""
        return f"nats://127.0.0.1:{self.port}"

    def compose(self, *argv: str, within: float = 180) -> str:
        """A command of compose."""
        profiles = [word for each in self.profiles for word in ("--profile", each)]
        whole = [*compose_command(), "-f", "compose.yaml", "-p", self.project, *profiles, *argv]
        return run(*whole, within=within, cwd=ROOT, env={**os.environ, **self.environment})

    def container(self, service: str) -> Any:
        """The container of a service, by the Docker SDK."""
        [found] = self._client().containers.list(
            all=True,
            filters={
                "label": [
                    f"com.docker.compose.project={self.project}",
                    f"com.docker.compose.service={service}",
                ]
            },
        )
        return found

    def _client(self) -> Any:
        from testcontainers.core.docker_client import DockerClient

        return DockerClient().client

    def inside(self, service: str, *argv: str) -> str:
        """A command in a service's container; its output."""
        code, output = self.container(service).exec_run(list(argv))
        assert code == 0, output
        return str(output.decode())

    def state(self, service: str) -> dict[str, Any]:
        """What the daemon says of a service's container."""
        found: dict[str, Any] = self.container(service).attrs["State"]
        return found

    def healthy(self, service: str, *, within: float = 90) -> None:
        """Returns when the health check says so."""
        self.until(
            lambda: self.state(service).get("Health", {}).get("Status") == "healthy",
            f"{service} healthy",
            within,
        )

    def until(self, check: Callable[[], Any], what: str, within: float = 90) -> Any:
        """The first true result."""
        deadline = time.monotonic() + within
        while not (result := check()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come true within {within:g} s\n{self.logs()}")
            time.sleep(0.1)
        return result

    def kill(self, service: str) -> None:
        """KILL to the container's first process, from outside: a crash, so that its restart policy counts."""
        pid = int(self.state(service)["Pid"])
        run("docker", "run", "--rm", "--pid=host", BASE, "sh", "-c", f"kill -KILL {pid}")

    def logs(self) -> str:
        """Everybody's last words."""
        return self.compose("logs", "--no-color", "--tail", "40")

    def leftovers(self) -> dict[str, list[str]]:
        """What of the project the daemon still has."""
        client, label = self._client(), {"label": f"com.docker.compose.project={self.project}"}
        return {
            "containers": [one.name for one in client.containers.list(all=True, filters=label)],
            "volumes": [one.name for one in client.volumes.list(filters=label)],
            "networks": [one.name for one in client.networks.list(filters=label)],
        }


@contextlib.contextmanager
def composition(*services: str, profiles: tuple[str, ...] = (), **settings: str) -> Iterator[Composition]:
    """Brings compose.yaml (`services` of it) up from the images of this checkout, and down again with its
    volumes."""
    need_docker()
    images()
    with socket.socket() as one, tempfile.TemporaryDirectory() as folder:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.close()
        environment = {"BASE": BASE, "NATS_IMAGE": NATS, "BAKEMESH_IMAGE": NODE, "NATS_PORT": str(port)}
        made = Composition(f"bakemeshtest{os.getpid()}", port, Path(folder), environment | settings, profiles)
        try:
            made.compose("up", "--no-build", "-d", *services)
            yield made
        except BaseException:
            print(made.logs())
            raise
        finally:
            made.compose("down", "--volumes", "--timeout", "30")
            left = made.leftovers()
            assert not any(left.values()), json.dumps(left)
