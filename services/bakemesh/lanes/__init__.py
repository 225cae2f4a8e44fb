"""The lane host: engine workers of this node, offered to modules. Text: protocol/inference-v1.md, 7."""
