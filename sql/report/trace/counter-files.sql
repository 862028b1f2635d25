-- Question: Is there any file of hardware counters?
-- Reading: No row: no kernel can have counters.
SELECT 1 AS n FROM counter_files LIMIT 1
