"""One file a verb: `add(parser)` says what it takes, `run(call)` does it and returns an exit code.

This table is all that `bakemesh --help` needs; a verb's file is imported only when the verb is used.
"""

VERBS: dict[str, str] = {
    "up": "a node on this machine, and what a PsySpec says: restarted when it dies",
    "builder": "one Builder in the foreground",
    "startup": "one Startup Supervisor in the foreground",
    "synapse": "one synapse module in the foreground: inference for the mesh",
    "lanes": "one lane host in the foreground: engine workers for the modules of the mesh",
    "axon": "one gateway in the foreground: synapses over signed HTTP, OpenAI-style routes",
    "worker": "one engine worker in the foreground, for the host that started it",
    "apply": "give a running mesh a changed PsySpec",
    "bake": "send a recipe and follow it",
    "control": "pause, start, cancel, skip or retry in a bake",
    "push": "answer a <requestdata> step",
    "logs": "the output of a bake, replayed",
    "bakes": "every bake that is known, and what waits",
    "nodes": "every node that has reported",
    "components": "every component; restart, stop, start, remove one",
    "watch": "the whole system, live",
    "drain": "take a node out of work, or back into it",
    "down": "end a node, once nothing runs on it",
    "cohort": "named sets of nodes",
    "ingest": "take a model into a node's cache, under an alias",
    "models": "the models of all nodes; try a quarantined one again",
    "embed": "the vectors of texts",
    "rerank": "documents in the order in which they fit a query",
    "generate": "text that goes on from a prompt",
    "chat": "talk with a model",
    "call": "call a synapse at an axon",
    "hotkey": "make a key file, or show whose it is",
    "axon-key": "the API keys of a gateway's OpenAI-style routes",
    "check": "validate recipes offline",
    "config": "every setting, and where its value comes from",
    "doctor": "what this machine has and lacks",
}
