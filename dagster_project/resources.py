"""The lake as a Dagster resource. Our own, because dagster-duckdb's holds its file's lock and cannot open read-only."""

import os

import dagster as dg

from pipelines.lake import Lake

LAKE = "TRACELAKE_LAKE"


def lake_folder(path: str = "") -> str:
    """Returns the lake's folder: `path`, else what TRACELAKE_LAKE names, else `lake`."""
    return path or os.environ.get(LAKE) or "lake"


class LakeResource(dg.ConfigurableResource[Lake]):
    """The lake in folder `path`; without one, the folder in TRACELAKE_LAKE, or `./lake`. Holds nothing open."""

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Lake:
        """Called once per run."""
        return Lake(lake_folder(self.path))
