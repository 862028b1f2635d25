"""Why a window takes as long as it does: the time of its path by cause, and what it would save without each of them."""
