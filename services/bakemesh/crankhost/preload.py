"""What a nursery imports before it forks crank hosts: the host, and what libraries import at first use.

Starts no thread and opens nothing, as a process that is to be forked must not.
"""

import encodings.idna

import bakemesh.crankhost.main

__all__ = ["bakemesh", "encodings"]
