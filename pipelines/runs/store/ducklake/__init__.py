"""DuckLake as a store: a lake in a bucket, or for many writers."""
