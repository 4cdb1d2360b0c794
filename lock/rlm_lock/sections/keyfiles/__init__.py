"""The section `keyfiles`: the files that say what a project is, with their roles and what they import."""
