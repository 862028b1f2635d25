"""What ran when: timelines, Gantt charts, printed tables."""
