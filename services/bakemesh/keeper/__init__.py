"""The keeper: a small process beside the Builder that starts its steps and sees to it that none outlives it.

Run by path (`python -I -S keeper.py FD`), never imported by another service. Standard library only, and
little of it: ten milliseconds to start, about one private MiB for each step's minder.

    Builder ── SEQPACKET ──→ keeper ── fork ──→ minder (one a step: subreaper) ── spawn ──→ the step
        └───────────── SEQPACKET, one a step ─────┘

| file | is |
|---|---|
| `keeper.py` | the program: takes requests, forks minders, kills for minders that died |
| `minder.py` | one step: starts it, tells its end, kills its tree |
| `launch.py` | the start of a step, with the reason when it fails |
| `tree.py` | who is below whom, parents struck first, reaping |
| `wire.py` | frames to and from the Builder |
| `kernel.py` | prctl |
"""
