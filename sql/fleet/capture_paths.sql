-- One row: a capture and what its critical path ends with: how long the path is, how much of it is known, or why there is none.
-- scope: capture
-- check: unique(capture_id, target)
SELECT
    capture_id,  -- The capture.
    target,  -- What the path ends with: last_gpu_end, last_collective_end or last_event_end.
    max(refused) AS refused,  -- Why there is no path; NULL where there is one.
    TRY_CAST(sum(dur_ns) AS BIGINT) AS span_ns,  -- From the first event of all ranks to the target, ns; NULL where there is no path.
    count(seq) AS n_segments,  -- Segments.
    count(seq) FILTER (WHERE guessed) AS n_guessed,  -- Hops that are guesses.
    TRY_CAST(coalesce(sum(dur_ns) FILTER (WHERE kind = 'gap'), 0) AS BIGINT) AS gap_ns,  -- Of the span: nothing known, ns. Much of it, and the answer says little.
    100.0 * coalesce(sum(dur_ns) FILTER (WHERE kind = 'gap'), 0) / nullif(sum(dur_ns), 0) AS gap_percent,  -- The same, percent of the span.
    TRY_CAST(coalesce(sum(dur_ns) FILTER (WHERE guessed), 0) AS BIGINT) AS guessed_ns,  -- Of the span: guessed hops, ns.
    max(n_ranks) AS n_ranks,  -- Ranks that are joined: those whose clocks stand to each other in a known way.
    max(n_nodes) AS n_nodes,  -- Nodes of the joined graph.
    max(n_edges) AS n_edges,  -- Its edges.
    max(heaviest_ns) AS heaviest_ns  -- Length of networkx's longest path over it, ns: gaps on the host weigh nothing there, so it is shorter and may lead through a rank that was not last.
FROM _walked_segments
GROUP BY capture_id, target
