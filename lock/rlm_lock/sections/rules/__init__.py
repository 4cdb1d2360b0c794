"""The section `rules`: the repository's instructions to contributors, quoted with their source. None of it is ours."""
