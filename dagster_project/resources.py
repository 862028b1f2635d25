"""The lake as Dagster resources. The resource of dagster-duckdb keeps its file locked and cannot open it read-only."""

import dagster as dg

from assets.metadata import PROCESS_TAG, lake_address, lake_folder
from pipelines.base.processes import this_process
from pipelines.lake import Lake
from pipelines.runs.store import Store, open_store


def _tag(context: dg.InitResourceContext) -> None:
    """Tag the run with its process, so that `fail_lost` can distinguish a live run from a killed one."""
    if context.instance and context.run_id:
        context.instance.add_run_tags(context.run_id, {PROCESS_TAG: this_process()})


class LakeResource(dg.ConfigurableResource[Lake]):
    """The lake in folder `path`, by default the folder in TRACELAKE_LAKE, or `./lake`. It keeps no file open.

    If the lake is at an address, the folder contains only Dagster's own files (see `lake_folder`).
    """

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Lake:
        """Return the lake. Dagster calls this once per run."""
        _tag(context)
        return Lake(lake_folder(self.path))


class StoreResource(dg.ConfigurableResource[Store]):
    """The lake at `path` (a folder or an address), by default TRACELAKE_LAKE, or `./lake`. It keeps no file open."""

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Store:
        """Return the store. Dagster calls this once per run."""
        _tag(context)
        return open_store(lake_address(self.path))
