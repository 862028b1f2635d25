"""The programs, with a module for each part of a job. The order of imports is the order of recording."""

from bench.pairs.programs import (  # noqa: F401, I001  # the order in which they are recorded
    waits,
    loading,
    copies,
    launches,
    graphs,
    computing,
    streams,
    optimizers,
    memory,
    compiled,
    distributed,
)
