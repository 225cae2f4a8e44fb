"""Inference on the bus: what callers ask of a synapse module, and modules of lanes. Text: inference-v1.md."""
