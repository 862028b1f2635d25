"""Errors for the user: a sentence and a remedy. Every interface shows both; a program catches a single class."""

from __future__ import annotations


class TracelakeError(Exception):
    """The request cannot be fulfilled; the message is a sentence that names file and location.

    `hint`: the remedy, if the sentence does not contain it. A class has a default, or the raiser passes one. Python
    prints it below the message.
    """

    hint = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or type(self).hint
        if self.hint:
            self.add_note(self.hint)


class WrongValue(TracelakeError, ValueError):
    """An option or setting has an invalid value; the message lists the valid ones."""
