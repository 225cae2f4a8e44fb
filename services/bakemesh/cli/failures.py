"""Foreign errors, mapped once to an exit code and a line for stderr.

What is not in the table is a bug of ours: exit code 1, its class named, and `--debug` shows the trace.
"""

from __future__ import annotations

from bakemesh.cli.exits import Exit, Stopped
from bakemesh.settings import NodeRefused, SettingRefused

# By the class's own name, so that nothing is imported to look at an error. Subclasses count.
_CODES: dict[str, Exit] = {
    "BusUnreachable": Exit.UNREACHABLE,
    "AccessDenied": Exit.UNREACHABLE,
    "BadCredentials": Exit.USAGE,
    "NotConnected": Exit.UNREACHABLE,
    "BusClosed": Exit.UNREACHABLE,
    "NoResponder": Exit.UNREACHABLE,
    "RequestTimeout": Exit.UNREACHABLE,
    "StoreUnavailable": Exit.UNREACHABLE,
    "NoStore": Exit.UNREACHABLE,
    "ListenRefused": Exit.USAGE,
    "ServerFailed": Exit.UNREACHABLE,
    "BusError": Exit.FAILED,
    "NodeUnreachable": Exit.UNREACHABLE,
    "NodeUnknown": Exit.UNREACHABLE,
    "NoNodeAvailable": Exit.UNREACHABLE,
    "ResultTimeout": Exit.UNREACHABLE,
    "NotStored": Exit.UNREACHABLE,
    "AmbiguousNode": Exit.USAGE,
    "AmbiguousRecipeID": Exit.USAGE,
    "AmbiguousComponent": Exit.USAGE,
    "ComponentUnknown": Exit.USAGE,
    "CohortUnknown": Exit.USAGE,
    "BakeUnknown": Exit.USAGE,
    "MessageTooLarge": Exit.USAGE,
    "DataPruned": Exit.INTEGRITY,
    "StatusPruned": Exit.INTEGRITY,
    "IntegrityError": Exit.INTEGRITY,
    "SupervisorError": Exit.FAILED,
    "RecipeRefused": Exit.USAGE,
    "ReferenceFailed": Exit.USAGE,
    "NameRefused": Exit.USAGE,
    "NoNode": Exit.UNREACHABLE,
    "NodeGone": Exit.UNREACHABLE,
    "ModelUnknown": Exit.USAGE,
    "TooManyTokens": Exit.USAGE,
    "BadRequest": Exit.USAGE,
    "ArtifactInvalid": Exit.USAGE,
    "ConfigInvalid": Exit.USAGE,
    "Cancelled": Exit.CANCELLED,
    "AnswerBroken": Exit.INTEGRITY,
    "HotkeyRefused": Exit.USAGE,
    "InferenceError": Exit.FAILED,
}
_INPUT_CODES = frozenset(
    {
        "malformed_message",
        "wrong_identity",
        "too_large",
        "invalid_recipe",
        "unsupported_step",
        "malformed_verb",
        "unknown_recipe",
        "unknown_request",
        "unknown_component",
        "unknown_cohort",
    }
)
_ADVICE = {
    "NoStore": "is JetStream on, and is a Builder running?",
    "NodeUnreachable": "start one there (`bakemesh up`), or see `bakemesh nodes`",
    "AmbiguousComponent": "choose with --node",
    "AmbiguousRecipeID": "choose with --supervisor (and --node)",
    "ModelUnknown": "take it in with `bakemesh ingest`, or see `bakemesh models`",
    "TooManyTokens": "make it shorter (embed and rerank can cut it: --truncate)",
    "DeadlineExceeded": "--deadline gives it longer",
    "QueueFull": "try again later, or with a longer --deadline",
    "ProbeRequired": "`bakemesh models probe` tries the model again",
    "AccessDenied": "give an identity with --creds, or the right name with --supervisor",
}


def code_of_result(code: str) -> Exit:
    """The exit code for a typed Result's code."""
    return Exit.USAGE if code in _INPUT_CODES else Exit.FAILED


def explain(error: BaseException) -> Stopped:
    """The error as what a user is told."""
    if isinstance(error, Stopped):
        return error
    if isinstance(error, SettingRefused):
        return Stopped(Exit.USAGE, *[f"setting {problem}" for problem in error.problems])
    if isinstance(error, NodeRefused):
        return Stopped(Exit.USAGE, str(error))
    kinds = [cls.__name__ for cls in type(error).__mro__]
    lines = str(error).splitlines() or [kinds[0]]
    if kinds[0] in ("RecipeRejected", "PushRejected"):
        return Stopped(code_of_result(str(getattr(error, "code", ""))), *lines)
    for kind in kinds:
        if kind in _CODES:
            advice = next((_ADVICE[name] for name in kinds if name in _ADVICE), None)
            if advice:
                lines[-1] = f"{lines[-1]}; {advice}"
            return Stopped(_CODES[kind], *lines)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Stopped(
            Exit.USAGE if isinstance(error, FileNotFoundError) else Exit.FAILED,
            f"{where}{error.strerror or error}",
        )
    return Stopped(Exit.FAILED, f"{kinds[0]}: {error} (this is a defect; --debug shows where)")
