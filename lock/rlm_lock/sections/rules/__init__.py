"""The section `rules`: what the repository tells whoever works on it, quoted with its source. None of it is ours."""
