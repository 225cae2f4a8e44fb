"""Every code that a Result, a Failed or an ack may carry, in the order in which they are tested.

Source: protocol/builder-v1.md, "Typed results". The first that applies is the answer.
"""

from __future__ import annotations

from enum import StrEnum


class Verb(StrEnum):
    """Control verbs. Terminate is Cancel by another name."""

    PAUSE = "Pause"
    START = "Start"
    CANCEL = "Cancel"
    TERMINATE = "Terminate"
    SKIP_STEP = "SkipStep"
    RETRY_STEP = "RetryStep"


class Code(StrEnum):
    """Codes of a Result and of Bake.Failed."""

    OK = "ok"
    # recipes
    MALFORMED_MESSAGE = "malformed_message"
    WRONG_IDENTITY = "wrong_identity"
    UNAUTHORISED = "unauthorised"
    DUPLICATE_RECIPE_ID = "duplicate_recipe_id"
    TOO_LARGE = "too_large"
    EXPIRED = "expired"
    INVALID_RECIPE = "invalid_recipe"
    UNSUPPORTED_STEP = "unsupported_step"
    DRAINING = "draining"
    RATE_LIMITED = "rate_limited"
    # controls
    MALFORMED_VERB = "malformed_verb"
    UNKNOWN_RECIPE = "unknown_recipe"
    STALE_CTRLSEQ = "stale_ctrlseq"
    TERMINAL = "terminal"
    HELD = "held"
    NO_STEP = "no_step"
    NOT_RETRYABLE = "not_retryable"
    # pushes
    UNKNOWN_REQUEST = "unknown_request"
    # components, nodes, cohorts, PsySpecs
    UNKNOWN_COMPONENT = "unknown_component"
    UNKNOWN_COHORT = "unknown_cohort"
    INVALID_PSYSPEC = "invalid_psyspec"
    # ends of a bake
    STEP_FAILED = "step_failed"
    TIMEOUT = "timeout"
    BUILDER_RESTARTED = "builder_restarted"
    INTEGRITY = "integrity"
    NODE_UNREACHABLE = "node_unreachable"


RECIPE_CODES = (
    Code.MALFORMED_MESSAGE,
    Code.WRONG_IDENTITY,
    Code.UNAUTHORISED,
    Code.DUPLICATE_RECIPE_ID,
    Code.TOO_LARGE,
    Code.EXPIRED,
    Code.INVALID_RECIPE,
    Code.UNSUPPORTED_STEP,
    Code.DRAINING,
    Code.RATE_LIMITED,
)
CONTROL_CODES = (
    Code.MALFORMED_MESSAGE,
    Code.MALFORMED_VERB,
    Code.UNKNOWN_RECIPE,
    Code.UNAUTHORISED,
    Code.STALE_CTRLSEQ,
    Code.TERMINAL,
    Code.HELD,
    Code.NO_STEP,
    Code.NOT_RETRYABLE,
    Code.RATE_LIMITED,
)
PUSH_CODES = (
    Code.MALFORMED_MESSAGE,
    Code.UNKNOWN_RECIPE,
    Code.UNAUTHORISED,
    Code.TERMINAL,
    Code.UNKNOWN_REQUEST,
    Code.TOO_LARGE,
)


COMPONENT_CODES = (
    Code.MALFORMED_MESSAGE,
    Code.MALFORMED_VERB,
    Code.UNKNOWN_COMPONENT,
    Code.UNAUTHORISED,
    Code.DRAINING,
    Code.RATE_LIMITED,
)
NODE_CODES = (
    Code.MALFORMED_MESSAGE,
    Code.MALFORMED_VERB,
    Code.UNAUTHORISED,
    Code.RATE_LIMITED,
    Code.TERMINAL,
)
REPORT_CODES = (Code.MALFORMED_MESSAGE, Code.UNAUTHORISED, Code.UNKNOWN_COMPONENT, Code.RATE_LIMITED)
COHORT_CODES = (Code.MALFORMED_MESSAGE, Code.UNKNOWN_COHORT, Code.RATE_LIMITED)
PSYSPEC_CODES = (Code.MALFORMED_MESSAGE, Code.UNAUTHORISED, Code.TOO_LARGE, Code.INVALID_PSYSPEC)


class AckOutcome(StrEnum):
    """`outcome` of a Status of kind ack."""

    PAUSED = "paused"
    RESTARTED = "restarted"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    RETRYING = "retrying"
    SUPERSEDED = "superseded"


class StepOutcome(StrEnum):
    """`outcome` of a step's last Status."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
