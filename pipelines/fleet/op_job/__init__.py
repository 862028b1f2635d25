"""Stragglers of a pipeline-parallel job, by the what-if model of ByteDance's StragglerAnalysis.

The input is an op-level trace of a job (a Parquet file and a YAML file in the same folder), not a profiler trace. It
contains every compute, send, receive and collective of sampled steps with its start and duration. The model answers how
long a step would take if no rank, stage or kind of op were slower than the others. The job's slowdown is the actual
step time divided by that ideal.

    ops_file.py (job.py, sizes.py) → template.py (p2p.py) → durations.py → replay.py → whatif.py → picture.py

How to read the numbers:

- Slowdowns are not additive. The slowdown of one stage may exceed the job's, because the ideal lets the others catch
  up. M_S may exceed 1, and M_W may be below 0. They are not shares of a whole, so never draw them as a pie chart.
- The ideal of an op is that of its kind over all stages. A stage that is meant to be longer (the loss layer on the
  last) therefore counts as straggling. `slowdown_stage_ideal`, the same with an ideal per stage, distinguishes the two.
- Slowdowns of ranks, stages and kinds restore measured durations, M_S and M_W replayed ones; they differ by 1e-7.
- Virtual stages (vpp > 1), separate gradient reductions and jobs without data parallelism follow the published rules,
  but no published job has them.
"""

from pipelines.fleet.op_job.job import JobMeta, JobRejected, JobTrace, Op
from pipelines.fleet.op_job.ops_file import read_job
from pipelines.fleet.op_job.whatif import WhatIf, what_if

__all__ = ["JobMeta", "JobRejected", "JobTrace", "Op", "WhatIf", "read_job", "what_if"]
