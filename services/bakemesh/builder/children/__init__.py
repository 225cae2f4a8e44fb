"""Child recipes: the Builder as the Supervisor of what its `<recipe>` steps send to other nodes.

`recipes.ChildRecipes` is the whole of it; `follow` is one child from its sending to its end, `errands`
cancels the children that were left behind, `book` journals which ones there are.
"""

from bakemesh.builder.children.recipes import ChildRecipes

__all__ = ["ChildRecipes"]
