-- One row: a caveat about an XSpace, derived from its rows.
WITH found AS (
    SELECT
        'xplane_no_launch' AS check_name, 'warning' AS severity, count(*) AS n,
        'work on devices without the id of its launch: which host work it waited for is unknown' AS detail
    FROM _xplane_rows
    WHERE device IS NOT NULL AND correlation IS NULL
    UNION ALL
    SELECT
        'xplane_no_device', 'warning', CASE WHEN count(*) FILTER (WHERE device IS NOT NULL) = 0 THEN 1 ELSE 0 END,
        'no work on a device is in the file: profile where the devices are'
    FROM _xplane_rows
)
SELECT
    check_name,  -- Name of the finding.
    severity,  -- info or warning.
    n,  -- Number of occurrences.
    detail  -- Explanation of the finding.
FROM found
WHERE n > 0
