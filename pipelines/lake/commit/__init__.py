"""The write side of the lake: batches of Parquet files, the catalog of commits, and locks."""
