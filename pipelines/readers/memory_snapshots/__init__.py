"""CUDA memory snapshots, as `torch.cuda.memory._dump_snapshot` writes them: allocations with their stacks, segments, blocks.

A snapshot is a pickle. It is read opcode by opcode (pickle_stream.py), because loading it would take several times its
size in memory and could run code; what its dictionaries mean is in entries.py; `lake.py` makes tables of them.
"""
