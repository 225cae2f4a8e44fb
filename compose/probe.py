"""Whether this node's Builder (or the service BAKEMESH_PROBE: synapse, lanes, axon) answers on its bus: exit
code 0 or 1, and a line that says so. A health check.

Standard library only, so that one costs 30 ms of a core and not half a second: it asks `$SRV.PING.<service>`
on the servers of BAKEMESH_NATS until one answer carries the node's id. Node and id come from BAKEMESH_NODE,
else from `node.json` in the state folder. With a key (BAKEMESH_CREDS) nkeys signs. Left out: TLS.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

ANSWER_S = 3.0
BUILDER = "builder"


class Silent(Exception):
    """Raised when nobody answers for the node; says what was tried."""


def node_id() -> str:
    """The id of this node."""
    name, _, given = os.environ.get("BAKEMESH_NODE", "").partition("=")
    if given or name:
        return given or name
    told = json.loads((Path(os.environ["BAKEMESH_STATE"]) / "node.json").read_text())
    return str(told["nodeid"])


def credentials(nonce: str, seed_file: str) -> dict[str, str]:
    """Who asks, for CONNECT, where there is a key."""
    import nkeys

    pair = nkeys.from_seed(Path(seed_file).read_bytes().strip())
    signed = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
    return {"nkey": pair.public_key.decode(), "sig": signed}


def ask(url: str, service: str, wanted: str) -> None:
    """Returns when the service of node `wanted` has answered. Raises Silent, OSError."""
    parts = urlsplit(url if "//" in url else f"nats://{url}")
    deadline = time.monotonic() + ANSWER_S
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 4222), ANSWER_S) as link:
        stream = link.makefile("rb")
        greeting = stream.readline()
        if not greeting.startswith(b"INFO "):
            raise Silent(f"{url} is no NATS server")
        asked: dict[str, object] = {"verbose": False, "pedantic": False, "lang": "probe", "version": "1"}
        asked |= {"headers": True, "no_responders": True}
        if seed := os.environ.get("BAKEMESH_CREDS"):
            asked |= credentials(json.loads(greeting[5:]).get("nonce", ""), seed)
        party = f"builder-{wanted}" if service == BUILDER else service
        inbox = f"_INBOX.{party}.probe{secrets.token_hex(8)}"
        question = f"PUB $SRV.PING.{service} {inbox} 0"
        lines = (f"CONNECT {json.dumps(asked)}", f"SUB {inbox} 1", question, "", "")
        link.sendall("\r\n".join(lines).encode())
        while (left := deadline - time.monotonic()) > 0:
            link.settimeout(left)
            line = stream.readline()
            if line.startswith(b"MSG "):
                told = json.loads(stream.read(int(line.split()[-1]) + 2))
                if told.get("metadata", {}).get("nodeid") == wanted:
                    return
            elif line.startswith(b"HMSG "):
                raise Silent(f"no {service} at all answers at {url}")
            elif line.startswith(b"PING"):
                link.sendall(b"PONG\r\n")
            elif not line or line.startswith(b"-ERR"):
                raise Silent(f"{url}: {line.decode(errors='replace').strip() or 'the connection ended'}")
    raise Silent(f"no answer from the {service} of {wanted} at {url}")


def main() -> int:
    """Tries every server."""
    service, wanted, problems = os.environ.get("BAKEMESH_PROBE", BUILDER), node_id(), []
    for url in os.environ.get("BAKEMESH_NATS", "nats://127.0.0.1:4222").split(","):
        try:
            ask(url.strip(), service, wanted)
        except (Silent, OSError, ValueError) as error:
            problems.append(f"{url}: {error}")
        else:
            print(f"the {service} of {wanted} answers at {url}")
            return 0
    print("; ".join(problems))
    return 1


if __name__ == "__main__":
    sys.exit(main())
