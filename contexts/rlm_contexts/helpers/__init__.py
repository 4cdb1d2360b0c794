"""Work on files that may be hostile (SQL over data, documents), each in a process of its own behind the OS walls."""
