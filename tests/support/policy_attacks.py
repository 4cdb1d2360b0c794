"""What policy files say, and the operations by which sessions got loose before."""

ALL = {"imports", "evals", "reads", "writes"}
CONTENTS = {
    "extends: strict\n": set[str](),
    "extends: default\n": {"imports"},
    "extends: default\nreopen: true\n": {"imports"},
    "extends: default\nurls: ['https://policy.invalid/']\nllm: {cache: true}\n": {"imports"},
    "extends: default\nfiles: {write: {add: ['${workspace}']}}\n": {"imports", "writes"},
    'language: {wall: "off"}\nfiles: {write: ["CONFIG"]}\nwalls: {require: [landlock]}\n': {"imports", "evals"},
    'language: {wall: "off"}\nfiles: {read: ["/"], write: ["${workspace}"]}\nnetwork: true\n': ALL,
}
"""What a policy file may say, and which of the probes it then lets through."""
STRICT, DEFAULT, *_, OURS, ANYTHING = CONTENTS
BUILT_IN = {"strict": set[str](), "default": {"imports"}, "tables": {"imports", "writes"}}
PATHS = ("safe", "link", "work")
"""Places that are named by their path; the policy `named` is a file too, but has a name."""
WAYS = ("restart", "kernel", "supervisor", "daemon", "both", "idle")
BEGINNING = ("open", "fork", "restore")
"""Operations for which there need not be a session."""
AGAIN = tuple(pair for _ in range(4) for pair in (("fork", "c"), ("end", "d")))
KNOWN = (
    # The file of a session's policy changes, and the session needs another kernel, or is opened again.
    ("open", "a", "a", "safe", "", 1),
    *(("betray", "a", "a", "safe", ANYTHING, WAYS.index(way)) for way in ("restart", "both", "idle")),
    ("edit", "a", "a", "safe", STRICT, 0),
    # An agent names a file, and one that is replaced while it is read.
    ("fork", "a", "b", "safe", "", 1),
    ("open", "c", "c", "default", "", 1),
    *((operation, name, "d", "named", ANYTHING, 4) for operation, name in AGAIN),
    # Its user applies a policy: without the word for it, and a stricter one.
    ("apply", "c", "c", "tables", "", 5),
    ("apply", "c", "c", "strict", "", 5),
    # A row is not what it was: while it is open, while it rests, without its hash, and while its kernel goes on.
    ("forge", "a", "a", "safe", ANYTHING, 1),
    ("ask", "a", "a", "safe", "", 1),
    ("idle", "a", "a", "safe", "", 1),
    ("forge", "a", "a", "safe", DEFAULT, 1),
    ("forge", "a", "a", "safe", DEFAULT, 3),
    ("open", "b", "b", "default", "", 1),
    ("forge", "b", "b", "safe", STRICT, 1),
    # A client whose own policy has a way out for data uses a session.
    ("open", "a", "a", "tables", "", 1),
    # A session is restored under another policy, or from a file of anybody's.
    ("save", "b", "b", "safe", "", 1),
    ("end", "b", "b", "safe", "", 1),
    *(("restore", "b", "b", "tables", "", number) for number in (1, 6, 2)),
    # Sessions write where policies are read, or are kept.
    ("apply", "c", "c", "tables", "", 0),
    ("open", "c", "c", "strict", "", 1),
    ("apply", "a", "a", "work", "", 0),
    ("edit", "c", "c", "named", OURS, 0),
    ("apply", "c", "c", "named", "", 1),
    ("rewrite", "c", "c", "named", ANYTHING, 1),
)
"""Operations by which sessions got loose before, each with its name, another name, a place, a text and a number."""
