"""What a verb gets: its arguments, the settings (resolved when first asked for) and the screen."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bakemesh.cli.screen import Screen
from bakemesh.settings import Settings, find_toml, flags_of, load


@dataclass
class Call:
    """One use of a verb."""

    args: argparse.Namespace
    screen: Screen
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def toml_path(self) -> Path | None:
        """The `bakemesh.toml` that is read, if there is one."""
        return find_toml(getattr(self.args, "setting_config", None), self.environ, Path.cwd())

    @cached_property
    def settings(self) -> Settings:
        """The resolved settings. Raises SettingRefused."""
        return load(flags_of(self.args), self.environ, self.toml_path)
