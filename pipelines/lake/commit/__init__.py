"""What is written: batches of Parquet files, the log of each, who computes what."""
