"""An old name, kept for programs outside the project: what was here is in pipelines/faces/ibis_tables.py.

It imports upward, out of its room; no file of the project imports it (tests/test_rooms.py, OLD_NAMES).
"""

from pipelines.faces.ibis_tables import open_tables

__all__ = ["open_tables"]
