"""The Builder's journal: what must survive its death. `Journal` commits, `records` reads and writes the
tables.
"""

from bakemesh.builder.journal.journal import Journal, JournalBroken, JournalClosed, JournalRefused

__all__ = ["Journal", "JournalBroken", "JournalClosed", "JournalRefused"]
