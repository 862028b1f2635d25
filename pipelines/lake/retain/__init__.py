"""What goes: old batches are removed, small ones merged."""
