"""The live process of a session and its sleeping copies: when they are taken, and how one takes over."""
