"""User interfaces: commands, reports, the console, notebooks, saved questions."""
