"""The errors that people see: a sentence, and the way out. Every face shows both; a program catches one class."""

from __future__ import annotations


class TracelakeError(Exception):
    """What was asked for cannot be done; the message is a sentence that names file and place.

    `hint` says what to do, if the sentence does not: a class has one, or the raiser gives it. Python prints it below the
    message.
    """

    hint = ""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or type(self).hint
        if self.hint:
            self.add_note(self.hint)


class WrongValue(TracelakeError, ValueError):
    """An option or setting has a value that it does not take; the message says which there are."""
