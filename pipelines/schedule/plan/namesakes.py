"""Detection of tasks that a dict silently dropped because another task had the same name.

A dict literal with two tasks of the same name as keys keeps the first key and the second value, without an error. So a
plan never contains the second task. A list of pairs would keep both, but `schedule` is documented as a dict. The only
evidence is the comparison that the dict makes when it is built. So this module reads the bytecode of the comparing code
to detect whether it builds a dict. Looking up a task, or adding it to a set, also compares tasks, but drops none.
"""

from __future__ import annotations

import dis
import gc
import types

_BUILDS = {
    dis.opmap[name]
    for name in ("BUILD_MAP", "BUILD_CONST_KEY_MAP", "MAP_ADD", "DICT_UPDATE", "DICT_MERGE", "STORE_SUBSCR")
    if name in dis.opmap
}
_CALLS = {code for name, code in dis.opmap.items() if name.startswith(("CALL", "PRECALL"))}
_BUILDERS = ("dict", "fromkeys", "update", "OrderedDict")
"""Functions that put keys into a dict. A set has an `update`, too."""
_UNIONS = {
    (i.opcode, i.arg or 0)
    for source in ("a | b", "a |= b")
    for i in dis.get_instructions(compile(source, "", "exec"))
    if i.opname.startswith(("BINARY", "INPLACE"))
}


def builds_a_dict(caller: types.FrameType, key: object) -> bool:
    """Return whether the code that compares `key` with another task of the same name is building a dict."""
    code, offset = caller.f_code.co_code, caller.f_lasti
    if code[offset] in _BUILDS:
        return True
    if code[offset] in _CALLS:
        name = _called(caller)
        return name in _BUILDERS and not (name == "update" and _in_a_set(key))
    return (code[offset], code[offset + 1]) in _UNIONS and not _in_a_set(key)


def _called(caller: types.FrameType) -> str | None:
    """Return the name of the called function, or None if it is unknown.

    It is the last name or attribute that is loaded where the call expression begins.
    """
    name, call = None, None
    instructions = list(dis.get_instructions(caller.f_code))
    for instruction in instructions:
        if instruction.offset == caller.f_lasti:
            call = instruction.positions
    for instruction in instructions:
        position = instruction.positions
        if instruction.offset >= caller.f_lasti or call is None or position is None:
            break
        starts = (position.lineno, position.col_offset) == (call.lineno, call.col_offset)
        if starts and instruction.opname.startswith("LOAD_") and isinstance(instruction.argval, str):
            name = instruction.argval
    return name


def _in_a_set(key: object) -> bool:
    """Return whether a set contains `key` at the time of the comparison.

    Unions of sets and of dicts use the same bytecode. In a union of sets, the resulting set already contains the key
    when another task is compared with it.
    """
    return any(isinstance(holder, set | frozenset) for holder in gc.get_referrers(key))
