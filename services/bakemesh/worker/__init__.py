"""One engine in a process of its own, speaking the engine-worker protocol v1 to the host that started it.

Blocking and single-lane by design: one connection, one request at a time, so that a hung engine maps to
exactly one process to kill. Normative text: protocol/worker-v1.md.

| module | is |
|---|---|
| `__main__` | argv, environment, signals |
| `serving` | the loop: bytes of the socket to packets, answers back |
| `requests` | one handler a request: checks what an engine must never see |
| `models` | loaded models by the names that the host knows them by |
| `config` | the keys of a LOAD's runtime_config: one table |
| `transport` | a Unix socket, or a named pipe |
| `artifact` | opens a file once, proves its digest, hands on the open file |
| `engines` | what computes: llama, fake |

Standard library only up to the engine: a worker starts anew after every crash.
"""
