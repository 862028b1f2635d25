"""The lake as a Dagster resource. Our own, because dagster-duckdb's holds its file's lock and cannot open read-only."""

import dagster as dg

from assets.metadata import lake_folder
from pipelines.lake import Lake


class LakeResource(dg.ConfigurableResource[Lake]):
    """The lake in folder `path`; without one, that in TRACELAKE_LAKE, or `./lake`; for an address, the folder of what is
    Dagster's own. Holds nothing open.
    """

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Lake:
        """Once per run."""
        return Lake(lake_folder(self.path))
