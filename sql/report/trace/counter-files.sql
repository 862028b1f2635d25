-- Question: Is there any file of hardware counters?
-- Reading: Without a row, no kernel can have counters.
SELECT count(*) AS n FROM counter_files HAVING count(*) > 0
