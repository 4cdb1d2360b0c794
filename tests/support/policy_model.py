"""What the model of a session knows of it, and the cells by which the session is asked."""

from dataclasses import dataclass, field, replace

from rlm_sandbox.policy import Policy

LOOK = """
through = []
try:
    import os
    through.append('through_imports')
except Exception:
    pass
(through, [name for name in dir() if name[:2] in ('m_', 't_')], [str(llm_answers[id]) for id in llm_answers])
"""
REWRITE = """
try:
    with open({file!r}, 'w') as file:
        file.write({text!r})
except Exception:
    pass
"""
PROBES = {
    "reads": "open('/etc/passwd').read(1) and 'through_reads'",
    "writes": "with open('{work}/probe', 'w') as file: pass\n'through_writes'",
    "evals": "eval('1') and 'through_evals'",
}


@dataclass
class Model:
    """A session: what its policy says, which probes that lets through, and what it may know."""

    policy: Policy
    digest: str
    text: str
    probes: set[str]
    place: str = ""
    family: Policy | None = None
    """What the first session had of which this one is a fork."""
    life: int = 0
    known: set[str] = field(default_factory=set)
    """Names of variables and texts."""
    marks: set[str] = field(default_factory=set)
    """Words that are in its texts, variables, queries and answers."""
    inherited: dict[str, int] = field(default_factory=dict)
    """By its id, each query that a fork has from its parent: the life of the session that first asked it."""

    @property
    def bound(self) -> Policy:
        """What it must never be looser than, whatever its own row says."""
        return self.family or self.policy

    def asker_of(self, query: str) -> int:
        """The life of the session that asked a query which this one has."""
        return self.inherited.get(query, self.life)

    def under(self, other: "Model") -> "Model":
        """What it knows, under the policy of another."""
        known, marks, inherited = set(self.known), set(self.marks), dict(self.inherited)
        return replace(other, life=self.life, known=known, marks=marks, inherited=inherited, family=self.family)


def without_scratch(policy: Policy) -> Policy:
    """What a policy lets out: not what is written into the session's own folder, which ends with it."""
    write = tuple(path for path in policy.files.write if "scratch" not in path)
    return replace(policy, files=replace(policy.files, write=write))
