"""What-if: the longest path of a window under changed edge weights, over a graph that is read and sorted once."""
