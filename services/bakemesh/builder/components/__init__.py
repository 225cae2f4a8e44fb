"""The component host: what `<module>` steps create, run and healed by this node's Builder.

states, life, core     pure: the table, the values, the one function
records                the journal's rows
launch, probe          what to start, whether it is healthy
component              one of them, alive: events in order, journaled before they are acted on
instance               its process: launched or found again, minded, ended
host                   all of them: `Components`
reports, orders        what they say over the bus, what is asked of them
"""

from __future__ import annotations
