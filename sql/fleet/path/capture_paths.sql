-- One row: a capture and a target of its critical path: how long the path is, how much of it is known, or why there is
-- none.
-- scope: capture
-- check: unique(capture_id, target)
WITH evidence AS (
    SELECT
        c.capture_id, e.matched_by,
        row_number() OVER (PARTITION BY c.capture_id ORDER BY e.evidence_order DESC) AS place
    FROM (SELECT DISTINCT capture_id, matched_by FROM collectives WHERE refused_reason IS NULL) AS c
    JOIN match_evidence AS e ON e.matched_by = c.matched_by
)
SELECT
    s.capture_id,  -- The capture.
    s.target,  -- What the path ends with: last_gpu_end, last_collective_end or last_event_end.
    max(s.refused_reason) AS refused_reason,  -- Why there is no path; NULL where there is one.
    -- From the first event of all ranks to the target, ns; NULL where there is no path.
    TRY_CAST(sum(s.duration_ns) AS BIGINT) AS span_ns,
    count(s.seq) AS n_segments,  -- Segments.
    count(s.seq) FILTER (WHERE s.guessed) AS n_guessed,  -- Waits on it that are inferred.
    -- Host time outside operators, ns.
    TRY_CAST(coalesce(sum(s.duration_ns) FILTER (WHERE s.kind = 'gap'), 0) AS BIGINT) AS gap_ns,
    -- The same in percent of the span.
    100e0 * coalesce(sum(s.duration_ns) FILTER (WHERE s.kind = 'gap'), 0)
    / nullif(sum(s.duration_ns), 0) AS gap_percent,
    -- Part of that which no annotation and no Python function owns, ns; where it is large, the path says little.
    TRY_CAST(
        coalesce(sum(s.duration_ns) FILTER (WHERE s.kind = 'gap' AND s.owner_event_id IS NULL), 0) AS BIGINT
    ) AS unowned_ns,
    -- Part of the span in inferred waits, ns.
    TRY_CAST(coalesce(sum(s.duration_ns) FILTER (WHERE s.guessed), 0) AS BIGINT) AS guessed_ns,
    max(s.n_ranks) AS n_ranks,  -- Ranks that are joined: those whose clocks could be aligned.
    max(s.n_nodes) AS n_nodes,  -- Nodes of the joined graph.
    max(s.n_edges) AS n_edges,  -- Its edges.
    -- Length of networkx's longest path through it, ns. All ranks begin at 0 there, so it is shorter where one begins
    -- late, and may lead through a rank that was not last.
    max(s.heaviest_ns) AS heaviest_ns,
    -- The weakest evidence that the match of a collective rests on, as in collectives; NULL where none is matched.
    max(e.matched_by) AS matched_by
FROM _walked_segments AS s
LEFT JOIN evidence AS e ON e.capture_id = s.capture_id AND e.place = 1
GROUP BY s.capture_id, s.target
