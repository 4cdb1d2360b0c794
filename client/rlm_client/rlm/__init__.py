"""Recursive Language Models (arXiv:2512.24601): a model that works on a long text by code, in turns, in a session."""
