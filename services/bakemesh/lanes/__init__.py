"""The lane host: engine workers of this node, offered to modules on the bus. Text: protocol/inference-v1.md, 7."""
