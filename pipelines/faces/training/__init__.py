"""tracelake inside a training script: a handler for torch.profiler, an answer to why the loop is slow, and callbacks."""
