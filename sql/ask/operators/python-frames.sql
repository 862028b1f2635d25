-- Question: Which lines of Python launch the GPU's work?
-- Reading: Only for traces recorded with `with_stack`. `user_frame` is the innermost frame outside PyTorch and Python's
-- library. Work of the backward pass (`backward`) counts for the frames of its forward operator. In the phases
-- `no_frame` and `no_launch`, the frame is unknown.
SELECT
    coalesce(t.job, t.file) AS job, t.rank,
    p.user_frame, p.phase, sum(p.n_kernels) AS n_kernels, round(sum(p.gpu_ns) / 1e6, 3) AS gpu_ms
FROM python_frame_gpu_time AS p
JOIN traces AS t ON p.trace_id = t.trace_id
GROUP BY coalesce(t.job, t.file), coalesce(t.job, t.trace_id), t.rank, p.user_frame, p.phase
ORDER BY sum(p.gpu_ns) DESC, job, t.rank, p.user_frame, p.phase, coalesce(t.job, t.trace_id)
