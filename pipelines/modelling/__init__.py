"""The work of operators in operations and bytes, the peaks of devices, and the utilization of the peaks."""
