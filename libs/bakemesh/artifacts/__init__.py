"""Files by their digest: what modules ingest, and lane hosts pull."""
