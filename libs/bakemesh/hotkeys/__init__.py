"""Hotkeys in files: reading and making them."""
