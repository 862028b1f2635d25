"""HTA's side of the benchmark. It runs in HTA's separate environment, so it imports no module of this project.

`hta_side.py load FILE` loads a trace. `hta_side.py path FILE` computes the critical path of the whole trace and the
summary. Both print one JSON object: seconds of each part within the process, nodes, and the summary in percent.
"""

import contextlib
import json
import logging
import sys
import time


def main(task, file):
    """Run one task and return its seconds and sizes."""
    began = time.perf_counter()
    from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

    logging.disable(logging.CRITICAL)
    seconds = {"import": time.perf_counter() - began}
    began = time.perf_counter()
    analyzer = TraceAnalysis(trace_files={0: file}, trace_dir="")
    seconds["load"] = time.perf_counter() - began
    result = {"seconds": seconds, "rows": len(analyzer.t.get_trace(0))}
    if task == "path":
        began = time.perf_counter()
        graph, success = analyzer.critical_path_analysis(rank=0, annotation="", instance_id=None)
        seconds["path"] = time.perf_counter() - began
        began = time.perf_counter()
        summary = graph.summary()
        seconds["summary"] = time.perf_counter() - began
        result |= {"success": success, "nodes": len(graph.nodes), "edges": len(graph.edges)}
        result["summary"] = {key: float(value) for key, value in summary.items()}
    return result


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        answer = main(*sys.argv[1:3])
    print(json.dumps(answer))
