"""The lake's SQL on Spark: a query in DuckDB's dialect over the same Parquet files, and the models of many traces."""
