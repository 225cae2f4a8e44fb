"""TLS between clients, hub and leaf, with certificates made for the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bakemesh.bus import Bus, BusSettings, Tls
from bakemesh.bus.errors import BusError, BusUnreachable
from bakemesh.bus.server_config import Join
from support.nats import connect, server
from support.waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def certificates(folder: Path) -> Tls:
    """An authority and a certificate for 127.0.0.1."""

    def run(*argv: str) -> None:
        subprocess.run(["openssl", *argv], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run(
        *("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority"),
        *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    run("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (folder / "extensions").write_text(
        "subjectAltName=IP:127.0.0.1\nkeyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth,clientAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    run(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-out", "server.pem", "-extfile", "extensions"),
    )
    return Tls(folder / "ca.pem", folder / "server.pem", folder / "server.key")


async def test_clients_and_leaves_speak_tls(tmp_path: Path) -> None:
    tls = certificates(tmp_path)
    trust = Tls(ca=tls.ca)
    async with server(tmp_path, tls=tls) as hub, connect(hub.url, tls=trust) as bus:
        assert hub.url.startswith("tls://")
        await bus.api.create_stream({"name": "s", "subjects": ["s.>"]})
        async with (
            server(tmp_path, node_id="edge", join=Join(hub.leaf_url, ca=tls.ca)) as leaf,
            connect(leaf.url) as near,
        ):

            async def joined() -> bool:
                try:
                    await near.hub_api.stream_info("s")
                except BusError:
                    return False
                return True

            await eventually(joined, what="the leaf joined over TLS")
        await hub.restart()
        await bus.wait_connected(20)
        assert (await bus.api.stream_info("s"))["config"]["name"] == "s"


async def test_a_server_that_is_not_trusted_is_not_spoken_to(tmp_path: Path) -> None:
    async with server(tmp_path, tls=certificates(tmp_path)) as hub:
        with pytest.raises(BusUnreachable, match=r"(?i)certificate"):
            await Bus.connect(BusSettings((hub.url,), connect_timeout_s=2))
