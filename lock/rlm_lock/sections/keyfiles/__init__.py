"""The section `keyfiles`: the files that show what a project is, with their roles and imports."""
