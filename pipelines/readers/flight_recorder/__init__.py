"""Flight Recorder dumps: what every rank had in flight when a job hung, and which rank it hung on."""
