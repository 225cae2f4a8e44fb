"""What is wrong with a model, or with what is asked of it. `error` is what the caller is told.

ModelError
├── ModelRefused     a file or alias cannot be used as it was asked for
└── TextRefused      a text, a list of ids or a chat cannot be given to the model
    └── TooManyTokens
"""

from __future__ import annotations

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of


class ModelError(Exception):
    """Base of the errors of models."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def error(self) -> ErrorObject:
        """For the caller."""
        return error_of(self.code, self.message)


class ModelRefused(ModelError):
    """Raised when a file is no model that can be used, or an alias cannot be what it is asked to be."""


class TextRefused(ModelError):
    """Raised when a text or a chat cannot be made into ids of this model."""

    def __init__(self, message: str, code: Code = Code.BAD_REQUEST) -> None:
        super().__init__(code, message)


class TooManyTokens(TextRefused):
    """Raised when item `item` has `have` tokens, special ones included, and the model takes `most`. `what`:
    what an item is; `whole`: there is one alone, and nothing cuts it.
    """

    def __init__(
        self, have: int, most: int, item: int = 0, what: str = "item", *, whole: bool = False
    ) -> None:
        subject, cut = (f"the {what}", "") if whole else (f"{what} {item}", " (truncate cuts it)")
        super().__init__(
            f"{subject} has {have} tokens; this model takes at most {most}{cut}", Code.TOO_MANY_TOKENS
        )
        self.have, self.most, self.item = have, most, item

    @property
    def error(self) -> ErrorObject:
        """For the caller, with the counts as details."""
        return error_of(self.code, self.message, have=self.have, most=self.most, item=self.item)
