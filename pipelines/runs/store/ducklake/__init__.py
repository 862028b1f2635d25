"""DuckLake as a store, for a lake in a bucket or a lake with many writers."""
