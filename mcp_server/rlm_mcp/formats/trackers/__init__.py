"""Files of other trackers: read into tasks, and written again with nothing lost that is not ours to know."""
