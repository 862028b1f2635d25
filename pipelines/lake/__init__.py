"""The lake: file layout, commit mark and views."""
