"""The crank host: a process that runs one component's Python function.

`__main__` (argv) → `main.main(start)` → `host.run`: load the script (`script`), connect, open the crank's
session, report ready (`bakemesh.crank.reporting`), call the function (`calling`), and say how it ended
(`failing`).
"""
