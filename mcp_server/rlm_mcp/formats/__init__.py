"""Sessions as files: notebooks, snapshots and trajectories."""
