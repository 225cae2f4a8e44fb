"""Names of the streams, buckets and keys of a mesh: pure functions of mesh and node.

What each is for, and its limits: protocol/builder-v1.md, "The bus". `libs/bakemesh/bus` makes them.
"""

from __future__ import annotations


def status_stream(mesh: str, node_id: str) -> str:
    """Status and outcomes of one node's bakes; on the server beside its Builder, its only writer."""
    return f"{mesh}-status-{node_id}"


def data_stream(mesh: str, node_id: str) -> str:
    """Data of one node's bakes; beside its Builder, its only writer."""
    return f"{mesh}-data-{node_id}"


def hub_status_stream(mesh: str) -> str:
    """Every node's status stream, sourced on the hub."""
    return f"{mesh}-status"


def hub_data_stream(mesh: str) -> str:
    """The leaf nodes' data streams, sourced on the hub."""
    return f"{mesh}-data"


def inbox_stream(mesh: str) -> str:
    """Recipes and pushes for every node, on the hub."""
    return f"{mesh}-inbox"


def leaf_inbox_stream(mesh: str, node_id: str) -> str:
    """Recipes and pushes for one node, on its own leaf server."""
    return f"{mesh}-inbox-{node_id}"


def nodes_bucket(mesh: str) -> str:
    """Last SystemStatus a node (`<NodeID>`), its Builder's claim (`<NodeID>.claim`), locks (`lock.*`)."""
    return f"{mesh}-nodes"


def ids_bucket(mesh: str) -> str:
    """RecipeID counters: key = Supervisor, value = the last N in ASCII decimal."""
    return f"{mesh}-ids"


def claim_key(node_id: str) -> str:
    """The key of a Builder's claim in the nodes bucket."""
    return f"{node_id}.claim"


def cohorts_bucket(mesh: str) -> str:
    """Cohorts: key = cohort, value = its members."""
    return f"{mesh}-cohorts"


def ready_key(node_id: str) -> str:
    """The key of a node's last Psyclone.Ready in the nodes bucket."""
    return f"{node_id}.ready"


def posts_stream(mesh: str) -> str:
    """Posts of modules that ask to be stored, on the hub; its subjects are exactly their types."""
    return f"{mesh}-posts"


def bucket_stream(bucket: str) -> str:
    """The stream that a KV bucket is."""
    return f"KV_{bucket}"


def bucket_subject(bucket: str, key: str) -> str:
    """The subject of one key of a bucket; `>` for all of them."""
    return f"$KV.{bucket}.{key}"
