"""Loader for pickles of containers, texts and numbers. Loading any other pickle could run arbitrary code."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

from pipelines.readers.flight_recorder.opcodes import check_opcodes


class NotPlain(Exception):
    """The pickle contains more than data. The message describes it, as in `the pickle names os.system`."""


def load_plain(data: bytes) -> Any:
    """Return the object in the pickle.

    Raise NotPlain if the pickle contains more than data, and Bomb if it is truncated or would take far more memory than
    its length. A corrupt pickle may raise nearly any other exception.
    """
    check_opcodes(data)
    return _Plain(io.BytesIO(data)).load()


class _Plain(pickle.Unpickler):
    """An unpickler that rejects every class or function name before it is looked up."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise NotPlain(f"the pickle names {module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise NotPlain("the pickle refers to something outside itself")
