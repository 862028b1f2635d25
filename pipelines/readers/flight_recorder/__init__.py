"""Flight Recorder dumps: the calls that every rank had in flight when a job hung, and the rank that caused the hang."""
