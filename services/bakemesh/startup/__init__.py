"""The Startup Supervisor: brings a mesh up from its PsySpec, one bring-up recipe a node."""
