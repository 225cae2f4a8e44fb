"""The keeper: a small process beside the Builder that starts its steps, and sees to it that none outlives it,
and its components, which do.

Run by path (`python -I -S keeper.py FD`), never imported by another service. Standard library only, and
little of it: ten milliseconds to start, about one private MiB for each step's minder.

    Builder ── SEQPACKET ──→ keeper ── fork ──→ minder (one a step: subreaper) ── spawn ──→ the step
        └───────────── SEQPACKET, one a step ─────┘ └─ fork → shim (one a component: subreaper) → component
                                                                └─ socket in the component's folder

| file | is |
|---|---|
| `keeper.py` | the program: takes requests, forks minders, kills for minders that died |
| `warden.py` | a subreaper's watch over one tree: TERM, grace, KILL until none is left |
| `minder.py` | one step: starts it, tells its end; it dies with Builder and keeper |
| `shim.py` | one component: the same, but it lets go of both and waits for the next Builder |
| `folder.py` | a shim's files: lock, identity, exit, socket |
| `logs.py` | a component's output: turned over without a pipe |
| `limits.py` | memory and CPU of a component, by cgroup or by looking |
| `nursery.py` | a keeper that imported a component's module: the start by a fork |
| `guise.py` | what such a fork shows in `ps` and /proc |
| `launch.py` | the start of a step, with the reason when it fails |
| `tree.py` | who is below whom, parents struck first, reaping |
| `wire.py` | frames to and from the Builder |
| `kernel.py` | prctl, a mark that `env -i` keeps, files cut at the front |
"""
