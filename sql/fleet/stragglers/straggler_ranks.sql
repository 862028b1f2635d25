-- One row: a rank of a capture, with the time that it waited and the time that other ranks waited for it.
-- How: sums over the collectives of lanes that are used. A rank is a straggler if four conditions are true
-- (thresholds). First, it caused more than max(2 / ranks, 25 %) of all waiting (75 % with two ranks), directly or
-- through ranks that were late because of it. Second, by itself, it delayed the others by more than 1 % of the span.
-- Third, the others waited for it in at least 25 % of its collectives. Fourth, durations and clocks agree on the
-- culprits. The rank with the longest collective is the victim, not the culprit.
-- scope: capture
-- check: unique(capture_id, rank)
WITH used AS (
    SELECT * FROM collectives WHERE refused_reason IS NULL
),
whole AS (
    SELECT
        capture_id, count(*) AS n, sum(wait_ns) AS wait_ns,
        avg(
            CASE WHEN culprit_rank = culprit_clock_rank THEN 1.0 WHEN culprit_clock_rank IS NOT NULL THEN 0.0 END
        ) AS agreement
    FROM used
    GROUP BY capture_id
),
spans AS (
    SELECT capture_id, max(aligned_end_ns) - min(aligned_start_ns) AS span_ns FROM collective_ranks GROUP BY capture_id
),
waits AS (
    SELECT
        r.capture_id, r.rank, count(*) AS n, sum(r.duration_ns) AS kernel_ns, sum(r.wait_ns) AS wait_ns,
        sum(r.wait_clock_ns) AS wait_clock_ns
    FROM collective_ranks AS r
    JOIN used AS u ON u.capture_id = r.capture_id AND u.collective_id = r.collective_id
    GROUP BY r.capture_id, r.rank
),
caused AS (
    SELECT
        capture_id, culprit_rank AS rank, count(*) AS n, sum(wait_ns) AS wait_ns
    FROM used
    GROUP BY capture_id, culprit_rank
),
rooted AS (
    SELECT capture_id, root_rank AS rank, sum(wait_ns) AS wait_ns
    FROM used
    WHERE root_rank IS NOT NULL
    GROUP BY capture_id, root_rank
),
late AS (
    SELECT
        capture_id, culprit_clock_rank AS rank, count(*) AS n, sum(late_ns) AS late_ns,
        sum(late_of_median_ns) AS late_of_median_ns
    FROM used
    WHERE culprit_clock_rank IS NOT NULL
    GROUP BY capture_id, culprit_clock_rank
),
sizes AS (
    SELECT capture_id, count(*) AS n_ranks FROM waits GROUP BY capture_id
),
measured AS (
    SELECT
        w.capture_id, w.rank, w.n, a.wait_ns AS all_ns,
        w.kernel_ns, w.wait_ns, w.wait_clock_ns, a.agreement, s.span_ns, z.n_ranks,
        coalesce(c.wait_ns, 0) AS caused_ns, coalesce(c.n, 0) AS n_last,
        CASE WHEN w.wait_clock_ns IS NOT NULL THEN coalesce(l.n, 0) END AS n_last_clock,
        CASE WHEN w.wait_clock_ns IS NOT NULL THEN coalesce(l.late_ns, 0) END AS marginal_ns,
        CASE WHEN w.wait_clock_ns IS NOT NULL THEN coalesce(l.late_of_median_ns, 0) END AS late_ns,
        CASE WHEN w.wait_clock_ns IS NOT NULL THEN coalesce(o.wait_ns, 0) END AS root_ns,
        coalesce(c.wait_ns, 0) / nullif(CAST(a.wait_ns AS DOUBLE), 0) AS caused_share,
        coalesce(c.n, 0) / CAST(w.n AS DOUBLE) AS share_last
    FROM waits AS w
    JOIN whole AS a ON a.capture_id = w.capture_id
    JOIN sizes AS z ON z.capture_id = w.capture_id
    LEFT JOIN spans AS s ON s.capture_id = w.capture_id
    LEFT JOIN caused AS c ON c.capture_id = w.capture_id AND c.rank = w.rank
    LEFT JOIN rooted AS o ON o.capture_id = w.capture_id AND o.rank = w.rank
    LEFT JOIN late AS l ON l.capture_id = w.capture_id AND l.rank = w.rank
)
SELECT
    capture_id,  -- The capture.
    rank,  -- The rank.
    n AS n_collectives,  -- Matched collectives that it takes part in.
    TRY_CAST(kernel_ns AS BIGINT) AS kernel_ns,  -- Time in these collectives, ns.
    TRY_CAST(wait_ns AS BIGINT) AS wait_ns,  -- Part of kernel_ns spent waiting for other ranks, by durations, ns.
    -- Waiting for other ranks, by the clock, ns; NULL where clocks are not aligned.
    TRY_CAST(wait_clock_ns AS BIGINT) AS wait_clock_ns,
    -- Waiting of other ranks in collectives whose culprit is this rank, ns.
    TRY_CAST(caused_ns AS BIGINT) AS caused_wait_ns,
    100e0 * caused_share AS caused_percent,  -- caused_wait_ns in percent of all waiting; NULL where no rank waits.
    -- Waiting caused by this rank, also through ranks that were late because they had waited for it, ns; NULL where
    -- clocks are not aligned.
    TRY_CAST(root_ns AS BIGINT) AS root_wait_ns,
    100e0 * root_ns / nullif(CAST(all_ns AS DOUBLE), 0) AS root_percent,  -- root_wait_ns in percent of all waiting.
    -- Time that the median of the other ranks waited for this rank, ns: the sum of collectives.late_of_median_ns where
    -- this rank started last. capture_causes shows the causes. NULL where clocks are not aligned.
    TRY_CAST(late_ns AS BIGINT) AS late_ns,
    -- Time saved if only this rank were on time, ns: the sum of collectives.late_ns where this rank started last; NULL
    -- where clocks are not aligned.
    TRY_CAST(marginal_ns AS BIGINT) AS marginal_ns,
    100e0 * marginal_ns / nullif(span_ns, 0) AS marginal_percent,  -- marginal_ns in percent of span_ns.
    span_ns,  -- From the first start to the last end of a matched collective, ns; NULL where clocks are not aligned.
    n_last,  -- Collectives whose culprit is this rank.
    n_last_clock,  -- Collectives in which this rank started last by the clock; NULL where clocks are not aligned.
    100 * share_last AS last_percent,  -- Percentage of its collectives in which it is the culprit, 0 to 100.
    -- Share of the capture's collectives in which durations and clocks name the same culprit, 0 to 1; NULL where clocks
    -- are not aligned.
    agreement,
    -- True if agreement is below straggler_agreement, or if the rank's clock is not aligned.
    wait_clock_ns IS NULL OR coalesce(agreement < threshold('straggler_agreement'), TRUE) AS culprit_uncertain,
    -- True if the rank is a straggler by the rule above; NULL where that cannot be determined.
    greatest(caused_share, coalesce(root_ns / nullif(CAST(all_ns AS DOUBLE), 0), 0))
    > CASE
        WHEN n_ranks <= 2 THEN threshold('straggler_share_of_two')
        ELSE greatest(threshold('straggler_share_fair') / n_ranks, threshold('straggler_share'))
    END
    AND marginal_ns > threshold('straggler_marginal') * span_ns
    AND share_last >= threshold('straggler_last')
    AND agreement >= threshold('straggler_agreement') AS is_straggler
FROM measured
