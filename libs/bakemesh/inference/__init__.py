"""The client of inference on the bus: embeddings, rerankings, text. Text: protocol/inference-v1.md."""
