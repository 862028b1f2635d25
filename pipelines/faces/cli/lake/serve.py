"""`tracelake serve` and `tracelake mcp`: servers of the lake for a browser, and for language models."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.base.extras import need
from pipelines.faces.cli.console import err, fail
from pipelines.faces.cli.options import DEFAULT_LAKE, LakeOption
from pipelines.faces.cli.refresh_tables import WITHOUT_BROKEN

_ANY = ("0.0.0.0", "::")
TimeoutOption = Annotated[float, typer.Option(help="Stop a query after this many seconds; 0 for never.", min=0)]
MemoryOption = Annotated[
    str,
    typer.Option(
        help="Memory a query may use, e.g. 4GB.", show_default="80 % of the machine's, divided among the queries"
    ),
]
WithoutOption = Annotated[
    bool,
    typer.Option(
        "--without-broken", help="Answer without missing or damaged files, and name them.", envvar=WITHOUT_BROKEN
    ),
]
SpillOption = Annotated[str, typer.Option(help="Disk a query may use when memory runs out.")]


def serve(
    lake: LakeOption = DEFAULT_LAKE,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 for a free one.", min=0, max=65535)] = 8050,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. There is no login: anyone who can reach this address can read the lake."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name for the page: of your proxy, or of this machine.")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Rows that the page shows of an answer.", min=1)] = 10_000,
    timeout: TimeoutOption = 600,
    memory: MemoryOption = "",
    spill: SpillOption = "10GB",
    queries: Annotated[int, typer.Option(help="Number of queries that may run concurrently; others wait.", min=1)] = 4,
    without_broken: WithoutOption = False,
) -> None:
    """Open the lake in a browser: tables, saved questions, SQL, downloads, reports. Read-only, on this machine only.

    Example: `tracelake serve --lake /data/lake`
    """
    need("serve", "tracelake serve")
    import uvicorn

    from pipelines.faces.serve.app import Settings, make_app
    from pipelines.faces.untrusted_queries import bound_process

    lake = _existing_lake(lake)
    limits = _limits(timeout, memory, spill, queries)
    named = (*(allow_host or ()), *([] if host in _ANY else [host]))
    app = make_app(Settings(lake, limits, max_rows, queries, named, without_broken))
    with _listening(host, port) as listening:
        shown_host = "127.0.0.1" if host in _ANY else f"[{host}]" if ":" in host else host
        err.print(f"tracelake: http://{shown_host}:{listening.getsockname()[1]}  (Ctrl-C stops it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            err.print("caveat: there is no login; anyone who can reach this address can read the lake", style="yellow")
        if host in _ANY and not allow_host:
            err.print(
                "hint: other machines can reach it only by a name that you pass with --allow-host NAME", style="yellow"
            )
        bound_process(limits.memory, queries)
        config = uvicorn.Config(
            app, log_level="warning", server_header=False, limit_concurrency=200, timeout_graceful_shutdown=1
        )
        _server(config, app.state.console.places.stop_all).run(sockets=[listening])


def _server(config: Any, stop_queries: Callable[[], None]) -> Any:
    """Return a uvicorn server that stops its queries before it exits, because it waits for their answers."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            stop_queries()
            super().handle_exit(sig, frame)

    return Server(config)


def mcp(
    lake: LakeOption = DEFAULT_LAKE,
    max_rows: Annotated[
        int, typer.Option(help="Maximum rows of an answer; an answer that is cut off says so.", min=1)
    ] = 200,
    timeout: TimeoutOption = 120,
    memory: MemoryOption = "",
    spill: SpillOption = "10GB",
    without_broken: WithoutOption = False,
) -> None:
    """Serve the lake to a language model over MCP (stdio): tables, saved questions, SQL, what-if.

    Queries cannot write. The tools fixes, what_if and compare store tables that the lake lacks.

    Example: `tracelake mcp --lake /data/lake`
    """
    need("mcp", "tracelake mcp")
    from pipelines.faces.mcp_tools.server import AT_ONCE, serve
    from pipelines.faces.mcp_tools.tools import Served
    from pipelines.faces.untrusted_queries import bound_process

    served = Served(_existing_lake(lake), _limits(timeout, memory, spill, AT_ONCE), max_rows, without_broken)
    bound_process(served.limits.memory, AT_ONCE)
    serve(served)


def _existing_lake(lake: Path | str) -> Path | str:
    """Return the lake.

    Exit if the folder does not exist. A lake without traces is valid, because traces may be added later.
    """
    from pipelines.runs.store import open_store

    store = open_store(lake)
    if store.lake is None:
        store.connect().close()  # raises StoreError if it cannot be opened
        return store.address
    if not store.lake.root.is_dir():
        name = shlex.quote(str(lake))
        raise fail(f"{lake} is not a folder", f"Ingest traces into it: tracelake ingest FILES --lake {name}")
    return store.lake.root


def _limits(timeout: float, memory: str, spill: str, queries: int) -> Any:
    """Return the limits of each query. Raise WrongValue for a size that DuckDB cannot parse."""
    from pipelines.faces.untrusted_queries import default_memory, memory_bytes
    from pipelines.lake.read.sandbox import Limits

    memory_bytes(spill)
    memory_bytes(memory)
    return Limits(timeout, 0, memory or default_memory(queries), spill)


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Exit if the port is taken, or the address does not belong to this machine."""
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(kind, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)  # from here on requests wait until the server is ready
        return listener
    except OSError as error:
        raise fail(f"{host}:{port}: {error.strerror}", "--port 0 selects a free port.") from None
