"""The Builder: the per-node authority that bakes recipes. `python -m bakemesh.builder` runs one."""
