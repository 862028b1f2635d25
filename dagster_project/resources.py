"""The lake as a Dagster resource. The resource of dagster-duckdb keeps its file locked and cannot open it read-only."""

import dagster as dg

from assets.metadata import lake_folder
from pipelines.lake import Lake


class LakeResource(dg.ConfigurableResource[Lake]):
    """The lake in folder `path`; without one, that in TRACELAKE_LAKE, or `./lake`; for an address, the folder of what is
    Dagster's own. Holds nothing open.
    """

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Lake:
        """Return the lake. Dagster calls this once per run."""
        return Lake(lake_folder(self.path))
