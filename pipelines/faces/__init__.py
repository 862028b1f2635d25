"""What people use: commands, reports, the console, notebooks, saved questions."""
