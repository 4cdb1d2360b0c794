"""What a snapshot says of a project in its parts: structure, key files, rules, history; and the folder `.memory`."""
