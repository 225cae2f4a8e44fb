"""The synapse module: inference for whoever asks on the bus. Text: protocol/inference-v1.md."""
