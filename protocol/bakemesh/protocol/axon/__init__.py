"""The signed HTTP edge, without the HTTP: synapses, their headers, hashes, signatures, streams.

| module | what it is |
|---|---|
| `synapse`, `streaming`, `builtin` | a request and its answer as one class; those that the mesh serves |
| `terminal`, `headers`, `keys`, `header_keys` | the header codec, both ways |
| `hashing`, `signing`, `ss58`, `signatures` | what is hashed and signed, and by which key |
| `claims`, `freshness`, `profiles`, `verdicts` | who signed a request, whether it is fresh, how it ends |
| `sse`, `tensor` | streams and arrays |
| `errors` | what goes wrong |

Normative: protocol/axon-v1.md.
"""

from __future__ import annotations

from bakemesh.protocol.axon import header_keys, keys
from bakemesh.protocol.axon.builtin import Embedding, Rerank, TextPrompt
from bakemesh.protocol.axon.errors import (
    DeserializationFailed,
    InvalidHeaderValue,
    InvalidTensor,
    MissingHeader,
    NotVerified,
    SynapseError,
)
from bakemesh.protocol.axon.hashing import sha3_256_hex
from bakemesh.protocol.axon.headers import parse_header, parse_header_f64, parse_header_u64
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.signatures import Hotkey
from bakemesh.protocol.axon.signing import signing_message
from bakemesh.protocol.axon.streaming import StreamingSynapse, StreamItem
from bakemesh.protocol.axon.synapse import Synapse
from bakemesh.protocol.axon.tensor import Tensor
from bakemesh.protocol.axon.terminal import TerminalInfo

__all__ = [
    "DeserializationFailed",
    "Embedding",
    "Hotkey",
    "InvalidHeaderValue",
    "InvalidTensor",
    "MissingHeader",
    "NotVerified",
    "Profile",
    "Rerank",
    "StreamItem",
    "StreamingSynapse",
    "Synapse",
    "SynapseError",
    "Tensor",
    "TerminalInfo",
    "TextPrompt",
    "header_keys",
    "keys",
    "parse_header",
    "parse_header_f64",
    "parse_header_u64",
    "sha3_256_hex",
    "signing_message",
]
