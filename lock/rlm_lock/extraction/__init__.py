"""What is kept of a file's text: definitions, imports and words, packed small, under a key of how they were found."""
