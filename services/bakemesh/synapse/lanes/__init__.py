"""Where the module's work is done: lanes in its own process, or lanes of this and other nodes on the bus."""
