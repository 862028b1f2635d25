"""Detects tasks that a dict silently dropped because another task had the same name.

A dict literal with two keys of one name keeps the first key and the second value, without an error: a plan never sees
the second task. A list of pairs would keep both, but `schedule` is documented as a dict. The only evidence is the
comparison that the dict makes when it is built, so the bytecode of the comparing code is read to see what it was doing.
Looking up a task, or putting it into a set, compares tasks as well but drops nothing.
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
"""Calls that put keys into a dict; a set has an `update` too."""
_UNIONS = {
    (i.opcode, i.arg or 0)
    for source in ("a | b", "a |= b")
    for i in dis.get_instructions(compile(source, "", "exec"))
    if i.opname.startswith(("BINARY", "INPLACE"))
}


def builds_a_dict(caller: types.FrameType, key: object) -> bool:
    """Returns whether the code that compares `key` with another task of its name is about to put it into a dict."""
    code, at = caller.f_code.co_code, caller.f_lasti
    if code[at] in _BUILDS:
        return True
    if code[at] in _CALLS:
        name = _called(caller)
        return name in _BUILDERS and not (name == "update" and _in_a_set(key))
    return (code[at], code[at + 1]) in _UNIONS and not _in_a_set(key)


def _called(caller: types.FrameType) -> str | None:
    """Returns the name of what is being called: the last name or attribute loaded where the call begins."""
    name, call = None, None
    instructions = list(dis.get_instructions(caller.f_code))
    for instruction in instructions:
        if instruction.offset == caller.f_lasti:
            call = instruction.positions
    for instruction in instructions:
        place = instruction.positions
        if instruction.offset >= caller.f_lasti or call is None or place is None:
            break
        starts = (place.lineno, place.col_offset) == (call.lineno, call.col_offset)
        if starts and instruction.opname.startswith("LOAD_") and isinstance(instruction.argval, str):
            name = instruction.argval
    return name


def _in_a_set(key: object) -> bool:
    """Sets are united with the same bytecode as dicts; the resulting set holds the key when the other is compared with
    it.
    """
    return any(isinstance(holder, set | frozenset) for holder in gc.get_referrers(key))
