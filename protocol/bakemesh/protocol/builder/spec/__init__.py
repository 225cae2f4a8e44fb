"""The recipe's XML: read, checked whole and turned into frozen values.

`document` turns text into nodes within bounds, `attributes` and `grammar` are the tables, `elements` reads
one element by them, `steps` and `module` hold the rules of each kind, `load` puts a Recipe together,
`references` is `${…}`, `root` reads the root's name alone, `paths` the path rule, `problems` what to say,
`model` the result. Source: protocol/builder-v1.md, "Recipes".

What is named here is loaded at its first use: a crank host needs `component` alone, and reads no XML.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bakemesh.protocol.builder.spec.document import Limits
    from bakemesh.protocol.builder.spec.load import load_recipe
    from bakemesh.protocol.builder.spec.model import Recipe
    from bakemesh.protocol.builder.spec.problems import Problem, RecipeRefused
    from bakemesh.protocol.builder.spec.references import ReferenceFailed, Values, expand
    from bakemesh.protocol.builder.spec.root import root_name

__all__ = [
    "Limits",
    "Problem",
    "Recipe",
    "RecipeRefused",
    "ReferenceFailed",
    "Values",
    "expand",
    "load_recipe",
    "root_name",
]

_MODULES: Final = {
    "Limits": "document",
    "Problem": "problems",
    "Recipe": "model",
    "RecipeRefused": "problems",
    "ReferenceFailed": "references",
    "Values": "references",
    "expand": "references",
    "load_recipe": "load",
    "root_name": "root",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
