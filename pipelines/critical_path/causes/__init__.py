"""The causes of a window's length: the time of its path by cause, and the savings without each cause."""
