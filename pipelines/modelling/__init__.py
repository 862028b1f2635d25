"""The work that the hardware was asked to do: work of operators, peaks of devices, and the utilization of the peaks."""
