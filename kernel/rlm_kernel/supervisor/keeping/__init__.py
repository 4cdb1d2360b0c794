"""What must outlive a supervisor: the line to the keeper, and what the keeper holds for the next one."""
