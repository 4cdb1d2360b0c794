"""Search in texts: linear patterns in threads, all others in processes that can be ended."""
