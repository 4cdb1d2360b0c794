"""What a project's manifests declare: packages and direct dependencies. Nothing of the project is executed."""
