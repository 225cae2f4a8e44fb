"""The client of axons."""
