"""Settings as argparse flags, for the command line and each service's `__main__`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from bakemesh.settings.table import ROWS, row_of


def add_flags(parser: argparse.ArgumentParser, names: Iterable[str] | None = None) -> None:
    """Adds the flags of the named settings (all without `names`) and `--config FILE`. Values are read by
    `load`.
    """
    group = parser.add_argument_group("settings")
    for row in ROWS if names is None else [row_of(name) for name in names]:
        default = row.default if row.default is not None else row.shown
        group.add_argument(
            row.flag,
            dest=f"setting_{row.name}",
            metavar=row.metavar,
            action="append" if row.repeatable else "store",
            help=f"{row.doc} [{row.env}; {default or 'none'}]".replace("%", "%%"),
        )
    group.add_argument(
        "--config", dest="setting_config", metavar="FILE", help="the bakemesh.toml to read [BAKEMESH_CONFIG]"
    )


def flags_of(namespace: argparse.Namespace) -> dict[str, object]:
    """The settings that were given as flags, for `load`."""
    return {
        name.removeprefix("setting_"): value
        for name, value in vars(namespace).items()
        if name.startswith("setting_") and name != "setting_config" and value is not None
    }
