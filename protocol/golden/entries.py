"""What several golden messages have in common, as it goes on the wire."""

from __future__ import annotations

CREATED = 1_750_000_000_000_000
SENDER = "builder@b1"
IDENTITY = {
    "Supervisor": "nightly",
    "Recipe": "index",
    "RecipeID": "nightly-index-7",
    "Node": "beta",
    "NodeID": "b1",
}
XML = '<recipe name="index"><cli name="hello" command="echo hello"/></recipe>'
BUILDER = "Psyclone.Builder"
STATUS = f"{BUILDER}.Bake.Status"
