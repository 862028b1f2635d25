"""tracelake inside a training script: a handler for torch.profiler, the answer to why the loop is slow, callbacks."""
