"""Starts a thread at its import: what a nursery cannot preload."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
