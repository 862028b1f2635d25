-- One row: a capture and a target of its critical path, with the length of the path and its known part, or the reason
-- why there is no path.
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
    s.target,  -- End of the path: last_gpu_end, last_collective_end or last_event_end.
    max(s.refused_reason) AS refused_reason,  -- Why there is no path; NULL if there is a path.
    -- From the first event of all ranks to the target, ns; NULL where there is no path.
    TRY_CAST(sum(s.duration_ns) AS BIGINT) AS span_ns,
    count(s.seq) AS n_segments,  -- Segments of the path.
    count(s.seq) FILTER (WHERE s.guessed) AS n_guessed,  -- Inferred waits on the path.
    -- Host time outside operators on the path, ns.
    TRY_CAST(coalesce(sum(s.duration_ns) FILTER (WHERE s.kind = 'gap'), 0) AS BIGINT) AS gap_ns,
    -- gap_ns in percent of span_ns.
    100e0 * coalesce(sum(s.duration_ns) FILTER (WHERE s.kind = 'gap'), 0)
    / nullif(sum(s.duration_ns), 0) AS gap_percent,
    -- Part of gap_ns that no annotation and no Python function owns, ns; where it is large, the path explains little.
    TRY_CAST(
        coalesce(sum(s.duration_ns) FILTER (WHERE s.kind = 'gap' AND s.owner_event_id IS NULL), 0) AS BIGINT
    ) AS unowned_ns,
    -- Part of span_ns in inferred waits, ns.
    TRY_CAST(coalesce(sum(s.duration_ns) FILTER (WHERE s.guessed), 0) AS BIGINT) AS guessed_ns,
    max(s.n_ranks) AS n_ranks,  -- Joined ranks: those whose clocks could be aligned.
    max(s.n_nodes) AS n_nodes,  -- Nodes of the joined graph.
    max(s.n_edges) AS n_edges,  -- Edges of the joined graph.
    -- Length of networkx's longest path through the joined graph, ns. All ranks begin at 0 there, so it is shorter than
    -- the span if a rank begins late, and may lead through a rank that was not last.
    max(s.heaviest_ns) AS heaviest_ns,
    -- Weakest evidence for the match of a collective, as in collectives; NULL if no collective is matched.
    max(e.matched_by) AS matched_by
FROM _walked_segments AS s
LEFT JOIN evidence AS e ON e.capture_id = s.capture_id AND e.place = 1
GROUP BY s.capture_id, s.target
