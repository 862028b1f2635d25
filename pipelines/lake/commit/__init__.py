"""The write side: batches of Parquet files, the catalog of commits, and locks."""
