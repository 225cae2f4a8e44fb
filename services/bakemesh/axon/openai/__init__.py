"""OpenAI-style routes: embeddings, completions, chats, rerankings and models of the mesh, by API key.

| module | what it is |
|---|---|
| `requests`, `answers` | the bodies, both ways; what is not supported is refused by its name |
| `asking` | a body as what the mesh is asked: turns, sampling, constraints |
| `refusals` | errors in OpenAI's form, and which status each has |
| `whole`, `events` | an answer at once; one by server-sent events |
| `routes` | which URL is what, who may, and for how long |
"""

from __future__ import annotations

from bakemesh.axon.openai.routes import openai_routes

__all__ = ["openai_routes"]
