"""The parts of a snapshot: structure, key files, rules, history; and the folder `.memory`."""
