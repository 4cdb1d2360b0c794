"""The project lock above the scanner process: its client, the protocol of the tool, and the contexts for sessions."""
