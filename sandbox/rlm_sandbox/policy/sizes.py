"""Units of sizes, for those who have no policy to read as well."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
