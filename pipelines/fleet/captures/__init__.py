"""Which traces form a capture, and what users say of their ranks."""
