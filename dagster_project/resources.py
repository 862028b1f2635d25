"""The lake as Dagster resources. The resource of dagster-duckdb keeps its file locked and cannot open it read-only."""

import dagster as dg

from assets.metadata import PROCESS_TAG, lake_address, lake_folder
from pipelines.base.processes import this_process
from pipelines.lake import Lake
from pipelines.runs.store import Store, open_store


def _tag(context: dg.InitResourceContext) -> None:
    """Tag the run with the process that works on it, so that `fail_lost` knows a live run from a killed one."""
    if context.instance and context.run_id:
        context.instance.add_run_tags(context.run_id, {PROCESS_TAG: this_process()})


class LakeResource(dg.ConfigurableResource[Lake]):
    """The lake in folder `path`; without one, that in TRACELAKE_LAKE, or `./lake`; for an address, the folder of what is
    Dagster's own. Holds nothing open.
    """

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Lake:
        """Return the lake. Dagster calls this once per run."""
        _tag(context)
        return Lake(lake_folder(self.path))


class StoreResource(dg.ConfigurableResource[Store]):
    """The lake at `path`, a folder or an address; without one, that in TRACELAKE_LAKE, or `./lake`. Holds nothing open."""

    path: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Store:
        """Return the store. Dagster calls this once per run."""
        _tag(context)
        return open_store(lake_address(self.path))
