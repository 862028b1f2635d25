-- Question: Is there any file of hardware counters?
-- Reading: No row: no kernel can have counters.
SELECT count(*) AS n FROM counter_files HAVING count(*) > 0
