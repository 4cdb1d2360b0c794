"""The one-byte tags of messages on the private streams."""

# kernel ↔ host: the channels of Jupyter (raw frames), and text that code writes
SHELL, CONTROL, IOPUB, STDIN = b"s", b"c", b"i", b"n"
STDOUT, STDERR = b"o", b"e"

# kernel ↔ host: a cell of a caller of the host, and what it shows, without the envelope of a Jupyter message
CELL, SHOWN = b"C", b"v"

# host → kernel
FORK, BEGIN, BRANCH, WAKE, REQUEST, SETTLED, INTERRUPT = b"F", b"B", b"N", b"W", b"X", b"S", b"I"

# kernel → host
HELLO, BEGUN, WOKEN, FORKED, DONE, ANSWERED = b"h", b"b", b"w", b"f", b"d", b"x"
QUERY, WAITS, ABORT, FATAL = b"q", b"a", b"A", b"!"

# client (daemon, provisioner) ↔ host
CALL, RESULT, EVENT = b"Q", b"R", b"E"

# host → the relay of a door: the front end has shut its kernel down
GOODBYE = b"g"

# The version of the calls, and the largest one.
PROTOCOL = 3
MAX_CALL = 512 << 20

# Of a query, in characters: the longest prompt, the longest name of a model, and what goes into one message at most.
MAX_PROMPT = 4_000_000
MAX_MODEL = 200
PROMPTS_AT_ONCE = 1_000_000
