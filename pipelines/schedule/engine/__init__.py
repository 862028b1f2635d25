"""Parts of both engines, each built on the previous part: state, stopping, batches, submitting, pipeline."""
