"""CUDA memory snapshots, as `torch.cuda.memory._dump_snapshot` writes them: stacks, allocations, segments and blocks.

A snapshot is a pickle. `pickle_stream.py` reads it opcode by opcode, because loading it would need several times its
size in memory and could run code. `entries.py` converts its dictionaries to rows. `lake.py` ingests the rows as tables.
"""
