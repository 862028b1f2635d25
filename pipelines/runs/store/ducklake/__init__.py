"""DuckLake as a store: a lake in a bucket, or one with many writers."""
