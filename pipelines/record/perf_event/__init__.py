"""Hardware counters of the CPU, through Linux's perf_event_open."""
