"""A recipe, parsed and validated: frozen values, durations in milliseconds, sizes in bytes.

Texts that may hold references (`${step:fetch.exitcode}`) are kept as written; `references` expands them when
the step starts. Source: protocol/builder-v1.md, "Recipes".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class OnFailure(StrEnum):
    """What a failed step does to its bake."""

    FAIL = "fail"
    HOLD = "hold"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What every step has. The root's values are filled in where the step does not override them."""

    KIND: ClassVar[str] = ""
    name: str
    index: int
    line: int
    timeout_ms: int = 0
    retryable: bool = False
    retries: int = 0
    retry_delay_ms: int = 0
    on_failure: OnFailure = OnFailure.FAIL
    weight: int = 1
    status_interval_ms: int = 5000
    data_interval_ms: int = 1000
    max_data_bytes: int = 262144


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStep(Step):
    """What `cli` and `code` share."""

    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None  # text
    stdin_entry: str | None = None  # the name of an entry kept by an earlier <requestdata>
    success_codes: frozenset[int] = frozenset({0})
    merge_stderr: bool = False
    progress: str | None = None  # regular expression with one group, a percent


@dataclass(frozen=True, slots=True, kw_only=True)
class CliStep(ProcessStep):
    """A program. `argv`: the split command or the `<arg>` list; with `shell`, one text for /bin/sh -c."""

    KIND: ClassVar[str] = "cli"
    argv: tuple[str, ...]
    shell: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeStep(ProcessStep):
    """A snippet in a fresh interpreter. `language`: python or sh; `source` is as written, unexpanded.

    An indented Python source is dedented: as written it could not run.
    """

    KIND: ClassVar[str] = "code"
    language: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDataStep(Step):
    """Asks the Supervisor for data: waits for a BakeData push whose `request` is this step's name."""

    KIND: ClassVar[str] = "requestdata"
    entry: str | None = None
    into: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeStep(Step):
    """An inner recipe for another node's Builder. `xml`: the inner element alone, `recipe`: the same."""

    KIND: ClassVar[str] = "recipe"
    node: str
    xml: str
    recipe: Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleStep(Step):
    """Creates, registers and runs a component. `xml`: the element, validated; run by the component host."""

    KIND: ClassVar[str] = "module"
    module: str
    wait: bool = True
    xml: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachStep(Step):
    """Waits until a component is ready, or with `follow` until it ends."""

    KIND: ClassVar[str] = "attach"
    module: str
    follow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The whole recipe. `name` None: the Supervisor's name is taken, as the seed says."""

    name: str | None
    steps: tuple[Step, ...]
    expires_ms: int = 0
    status_interval_ms: int = 5000
    data_interval_ms: int = 1000
    max_data_bytes: int = 262144
    timeout_ms: int = 0
    on_failure: OnFailure = OnFailure.FAIL

    @property
    def requests(self) -> frozenset[str]:
        """Names that a BakeData push may answer: those of the `<requestdata>` steps."""
        return frozenset(step.name for step in self.steps if isinstance(step, RequestDataStep))
