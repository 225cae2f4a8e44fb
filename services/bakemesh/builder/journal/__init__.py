"""The Builder's journal: what must survive its death. `Journal` commits, `records` reads and writes the
tables.
"""

from bakemesh.builder.journal.journal import Journal, JournalClosed, JournalRefused

__all__ = ["Journal", "JournalClosed", "JournalRefused"]
