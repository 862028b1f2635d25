"""Tests of the lake: crashes, concurrent processes, the analysts' view."""
