"""Tests of the lake: crashes, several processes at once, what analysts see."""
