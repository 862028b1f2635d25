"""What the hardware was asked to do: work of operators, peaks of devices, and how much of the peaks was used."""
