"""Programs recorded in pairs, unchanged (A) and with one change (B): the truth that predictions are compared with."""
