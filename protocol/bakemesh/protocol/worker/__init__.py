"""The engine-worker protocol, version 1: what a lane host and its engine process say to each other.

Sans-IO: bytes in, packets out. Normative text: protocol/worker-v1.md.

| module | is |
|---|---|
| `frames` | u32 LE length and payload, read without a copy |
| `headers` | one frozen value a message type, and its JSON |
| `packets` | a header with the raw frame that follows it |
| `link` | which message may follow which: one table |
| `ends` | the two roles, host and worker, on top of those |
| `place` | where the socket lies |

Standard library only: a worker is started again after every crash, and its imports are part of that.
"""
