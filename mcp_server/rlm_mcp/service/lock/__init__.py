"""The project lock above the process that scans: its client, the protocol of the calls, and what sessions get of it."""
