"""The lake as a Dagster resource. Our own, because dagster-duckdb's holds its file's lock and cannot open read-only."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from assets.metadata import lake_folder
from pipelines.lake import Lake


class LakeResource(dg.ConfigurableResource[Lake]):
    """The lake in folder `path`; without one, the folder in TRACELAKE_LAKE, or `./lake`. Holds nothing open."""

    path: str = ""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Lake]:
        """Once per run; what the run has claimed is free again when it ends."""
        lake = Lake(lake_folder(self.path))
        try:
            yield lake
        finally:
            lake.claims.release()
