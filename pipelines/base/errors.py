"""Errors for the user, with a sentence and a remedy, which every interface shows. All have one base class."""

from __future__ import annotations


class TracelakeError(Exception):
    """The request cannot be fulfilled. The message is a sentence that names file and location.

    `hint`: the remedy, if the sentence does not contain it. The caller passes it, or the class has a default. Python
    prints the hint below the message.
    """

    hint = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or type(self).hint
        if self.hint:
            self.add_note(self.hint)


class WrongValue(TracelakeError, ValueError):
    """An option or setting has an invalid value. The message lists the valid values."""
