"""Stragglers of a pipeline-parallel job, by the what-if model of ByteDance's StragglerAnalysis.

The input is an op-level trace of a job (a Parquet file and a YAML file in the same folder), not a profiler trace. It
contains every compute, send, receive and collective of sampled steps with its start and duration. The model computes
the ideal step time, in which no rank, stage or kind of op is slower than the others. The job's slowdown is the actual
step time divided by the ideal step time.

    ops_file.py (job.py, sizes.py) → template.py (p2p.py) → durations.py → replay.py → whatif.py → picture.py

How to read the numbers:

- Slowdowns are not additive. A stage may have a larger slowdown than the job, because the other stages catch up when
  they are ideal. M_S may exceed 1, and M_W may be below 0. They are not shares of a whole, so never draw them as a pie
  chart.
- An op's ideal duration is one value per kind over all stages. A stage that takes longer by design (the last stage
  computes the loss) therefore counts as straggling. `slowdown_stage_ideal` is the slowdown with an ideal per stage, and
  distinguishes such a stage from a straggler.
- Slowdowns of ranks, stages and kinds use measured durations. M_S and M_W use replayed durations, which differ by 1e-7.
- Virtual stages (vpp > 1), separate gradient reductions and jobs without data parallelism follow the published rules,
  but no published job has them.
"""

from pipelines.fleet.op_job.job import JobMeta, JobRejected, JobTrace, Op
from pipelines.fleet.op_job.ops_file import read_job
from pipelines.fleet.op_job.whatif import WhatIf, what_if

__all__ = ["JobMeta", "JobRejected", "JobTrace", "Op", "WhatIf", "read_job", "what_if"]
