"""The processes that run cells and the one that supervises them, with their connections to Jupyter."""
