"""Tables brought up to date, checked and removed; a folder or DuckLake behind one interface."""
