"""Units of sizes, for modules that read no policy."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
