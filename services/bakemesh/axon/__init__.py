"""The gateway: signed synapses and OpenAI-style requests come in over HTTP."""
