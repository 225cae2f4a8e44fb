"""Settings: one row each, resolved as flag, environment, `bakemesh.toml`, default, with the origin kept.

`load` gives a `Settings` value: attributes for the values, `origin(name)` for where each came from. A bad
value is a `SettingRefused` that names its origin, all bad ones at once. `settle_node` keeps the node's id in
the state folder. Left out: what a setting does; each service reads the ones it needs.
"""

from bakemesh.settings.flags import add_flags, flags_of
from bakemesh.settings.load import NatsFound, Origin, Settings, load
from bakemesh.settings.node import Node, NodeRefused, settle_node
from bakemesh.settings.table import ROWS, Row, row_of
from bakemesh.settings.toml import find_toml
from bakemesh.settings.values import NodeName, Refused, SettingRefused

__all__ = [
    "ROWS",
    "NatsFound",
    "Node",
    "NodeName",
    "NodeRefused",
    "Origin",
    "Refused",
    "Row",
    "SettingRefused",
    "Settings",
    "add_flags",
    "find_toml",
    "flags_of",
    "load",
    "row_of",
    "settle_node",
]
