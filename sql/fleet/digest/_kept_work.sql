-- model: _kept_windows
-- One row: a window of a trace of which only a digest is kept, with the columns of _compared_windows.
-- scope: trace
-- check: unique(trace_id, step)
SELECT
    trace_id,  -- As in _compared_windows.
    step,  -- As in _compared_windows.
    start_ns,  -- As in _compared_windows, ns.
    end_ns,  -- As in _compared_windows, ns.
    duration_ns,  -- As in _compared_windows, ns.
    host_start_ns,  -- As in _compared_windows, ns.
    host_end_ns,  -- As in _compared_windows, ns.
    host_ns,  -- As in _compared_windows, ns.
    warm_up_times,  -- As in _compared_windows.
    busy_ns,  -- As in _compared_windows, ns.
    idle_ns,  -- As in _compared_windows, ns.
    earlier_ns  -- As in _compared_windows, ns.
FROM digest_steps;

-- model: _kept_host
-- One row: host events of a trace of which only a digest is kept, with the columns of _compared_host.
-- scope: trace
-- check: unique(trace_id, step, cat, name)
SELECT
    trace_id,  -- As in _compared_host.
    step,  -- As in _compared_host.
    cat,  -- As in _compared_host.
    name,  -- As in _compared_host.
    n,  -- As in _compared_host.
    self_ns  -- As in _compared_host, ns.
FROM digest_host;

-- model: _kept_work
-- One row: GPU work of a trace of which only a digest is kept, with the columns of _compared_work.
-- scope: trace
-- check: unique(trace_id, step, operator, has_operator, category, cat, name)
SELECT
    trace_id,  -- As in _compared_work.
    step,  -- As in _compared_work.
    operator,  -- As in _compared_work.
    has_operator,  -- As in _compared_work.
    category,  -- As in _compared_work.
    CAST(NULL AS VARCHAR) AS module,  -- NULL: a digest does not keep modules.
    CAST(NULL AS VARCHAR) AS input_dims,  -- NULL: a digest does not keep shapes.
    CAST(NULL AS VARCHAR) AS input_types,  -- NULL, as input_dims.
    cat,  -- As in _compared_work.
    name,  -- As in _compared_work.
    n,  -- As in _compared_work.
    duration_ns  -- As in _compared_work, ns.
FROM digest_work
