"""What a plan will cost, and the best legal one."""
