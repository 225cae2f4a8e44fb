"""A PsySpec's modules by node, and what only that can tell: whether what a module waits for is beside it.

A module without `node` is its reader's node's, so that whether it shares a node with one that names its node
is known where the reader is: `groups` refuses there what `unsettled` can only warn of before.
"""

from __future__ import annotations

from collections.abc import Iterator

from bakemesh.protocol.builder.spec.problems import MOST, Problem, problem, quoted
from bakemesh.protocol.psyspec.model import Group, ModuleEntry, NodeEntry, PsySpec, PsySpecRefused

ORDER = "order is kept within a node alone (wait for Psyclone.Ready, or for a post of it, in the crank)"


def groups(psyspec: PsySpec, node: str, node_id: str) -> tuple[Group, ...]:
    """The modules by node: first those of this node (`local`, perhaps none), then the others that have any.

    An entry's id decides whether it is this node, where it has one, else its name. Raises PsySpecRefused
    where a module depends on one of another node.
    """
    here = {entry.name for entry in psyspec.nodes if _is(entry, node, node_id)}
    apart = [pair for pair in _open(psyspec) if (pair[0].node or pair[1].node) not in here]
    if apart:
        where = f"the node whose PsySpec it is, here {node}"
        raise PsySpecRefused(
            _problem(
                module, f"{quoted(other.spec.name)} is on {_place(other, where)}, this one on "
                f"{_place(module, where)}; {ORDER}",
            )
            for module, other in apart[:MOST]
        )  # fmt: skip
    local = tuple(each for each in psyspec.modules if each.node is None or each.node in here)
    found = [Group(node=node, node_id=node_id, modules=local, local=True)]
    for entry in psyspec.nodes:
        if entry.name not in here:
            modules = tuple(each for each in psyspec.modules if each.node == entry.name)
            if modules:
                found.append(Group(node=entry.name, node_id=entry.node_id, modules=modules, local=False))
    return tuple(found)


def unsettled(psyspec: PsySpec) -> tuple[Problem, ...]:
    """Dependences between modules with and without `node`: kept on one node, refused on the others."""
    where = "the node whose PsySpec it is"
    return tuple(
        _problem(
            module,
            f"{quoted(other.spec.name)} is on {_place(other, where)}, this one on {_place(module, where)}:"
            f" only the Startup Supervisor of node {module.node or other.node} takes this; {ORDER}",
        )
        for module, other in [*_open(psyspec)][:MOST]
    )


def _open(psyspec: PsySpec) -> Iterator[tuple[ModuleEntry, ModuleEntry]]:
    """Modules with one that they depend on, where one of the two names its node and the other does not."""
    by_name = {entry.spec.name: entry for entry in psyspec.modules}
    for module in psyspec.modules:
        for name in module.spec.depends:
            other = by_name[name]
            if (module.node is None) != (other.node is None):
                yield module, other


def _is(entry: NodeEntry, node: str, node_id: str) -> bool:
    return entry.node_id == node_id if entry.node_id is not None else entry.name == node


def _place(module: ModuleEntry, without: str) -> str:
    return f"node {module.node}" if module.node is not None else without


def _problem(module: ModuleEntry, said: str) -> Problem:
    return problem(module.file, module.line, "module", "depends", said)
