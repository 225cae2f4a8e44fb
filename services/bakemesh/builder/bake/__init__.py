"""One bake: `core` decides (pure), `session` acts."""
