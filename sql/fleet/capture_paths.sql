-- One row: a capture and a target of its critical path: how long the path is, how much of it is known, or why there is
-- none.
-- scope: capture
-- check: unique(capture_id, target)
SELECT
    capture_id,  -- The capture.
    target,  -- What the path ends with: last_gpu_end, last_collective_end or last_event_end.
    max(refused_reason) AS refused_reason,  -- Why there is no path; NULL where there is one.
    -- From the first event of all ranks to the target, ns; NULL where there is no path.
    TRY_CAST(sum(duration_ns) AS BIGINT) AS span_ns,
    count(seq) AS n_segments,  -- Segments.
    count(seq) FILTER (WHERE guessed) AS n_guessed,  -- Waits on it that are inferred.
    -- Host time outside operators, ns.
    TRY_CAST(coalesce(sum(duration_ns) FILTER (WHERE kind = 'gap'), 0) AS BIGINT) AS gap_ns,
    -- The same in percent of the span.
    100e0 * coalesce(sum(duration_ns) FILTER (WHERE kind = 'gap'), 0) / nullif(sum(duration_ns), 0) AS gap_percent,
    -- Part of that which no annotation and no Python function owns, ns; where it is large, the path says little.
    TRY_CAST(
        coalesce(sum(duration_ns) FILTER (WHERE kind = 'gap' AND owner_event_id IS NULL), 0) AS BIGINT
    ) AS unowned_ns,
    -- Part of the span in inferred waits, ns.
    TRY_CAST(coalesce(sum(duration_ns) FILTER (WHERE guessed), 0) AS BIGINT) AS guessed_ns,
    max(n_ranks) AS n_ranks,  -- Ranks that are joined: those whose clocks could be aligned.
    max(n_nodes) AS n_nodes,  -- Nodes of the joined graph.
    max(n_edges) AS n_edges,  -- Its edges.
    -- Length of networkx's longest path through it, ns. All ranks begin at 0 there, so it is shorter where one begins
    -- late, and may lead through a rank that was not last.
    max(heaviest_ns) AS heaviest_ns
FROM _walked_segments
GROUP BY capture_id, target
