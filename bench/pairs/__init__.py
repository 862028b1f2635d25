"""Programs recorded in pairs, unchanged (A) and with one change (B), as the ground truth for predictions."""
