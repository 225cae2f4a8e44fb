"""How a node's name and id are decided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol import names
from bakemesh.settings import Node, NodeRefused
from bakemesh.settings.node import decide, from_hostname
from bakemesh.settings.values import NodeName


@pytest.mark.parametrize(
    ("given_", "kept", "wanted"),
    [
        (None, None, Node("host", "host")),
        (None, Node("alpha", "a1"), Node("alpha", "a1")),
        (NodeName("beta"), None, Node("beta", "beta")),
        (NodeName("beta", "b1"), None, Node("beta", "b1")),
        (NodeName("beta"), Node("alpha", "a1"), Node("beta", "a1")),
        (NodeName("beta", "a1"), Node("alpha", "a1"), Node("beta", "a1")),
    ],
)
def test_the_id_is_kept_the_name_may_change(given_, kept, wanted):
    assert decide(given_, kept, "host.example.org", "/state") == wanted


def test_another_nodes_state_folder_is_refused():
    with pytest.raises(NodeRefused, match="belongs to the node id 'a1', not 'b1'"):
        decide(NodeName("beta", "b1"), Node("alpha", "a1"), "host", "/state")


def test_a_name_too_long_for_an_id_says_how_to_give_one():
    with pytest.raises(NodeRefused, match=r"--node n{30}=ID"):
        decide(NodeName("n" * 30), None, "host", "/state")


@given(st.text(max_size=80))
def test_every_host_name_makes_a_node(hostname):
    assert names.is_valid("NodeID", from_hostname(hostname))
