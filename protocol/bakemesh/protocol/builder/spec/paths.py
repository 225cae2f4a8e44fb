"""The rule for `cwd` and `into`: both start from the bake's own folder, and only an absolute path leaves it.

Pure text: nothing is looked up, so a symbolic link inside the folder is the business of whoever opens the
path.
"""

from __future__ import annotations

from bakemesh.protocol.builder.spec.problems import quoted


def wrong(path: str, *, file: bool = False) -> str | None:
    """What is wrong with a path, None where nothing is. `file`: it must name a file, not a folder.

    Asked at load of the path as it is written, and again at run time where it held references.
    """
    if not path:
        return "must not be empty"
    if "\0" in path:
        return "holds a NUL"
    if file and path.rpartition("/")[2] in ("", ".", ".."):
        return f"{quoted(path)} is a folder; name a file"
    if path.startswith("/"):
        return None
    depth = 0
    for part in path.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return f"{quoted(path)} leaves the bake's own folder; a path that leaves it must be absolute"
    return None
