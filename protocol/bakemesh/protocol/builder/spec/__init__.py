"""The recipe's XML: read, checked whole and turned into frozen values.

`document` turns text into nodes within bounds, `attributes` and `grammar` are the tables, `elements` reads
one element by them, `steps` and `module` hold the rules of each kind, `load` puts a Recipe together,
`references` is `${…}`, `root` reads the root's name alone, `paths` the path rule, `problems` what to say,
`model` the result. Source: protocol/builder-v1.md, "Recipes".
"""

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
