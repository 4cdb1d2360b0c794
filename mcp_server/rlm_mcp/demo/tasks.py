"""What the three sub-agents are asked: their prompts, what they search for and the Python they run.

Each task's code uses the shared text under the name `corpus`, prints an insight of a few lines, and leaves a
deferred question, or a list of them, under the name `<agent>_note`.
"""

from dataclasses import dataclass

PROMPT = """{goal}
The text is the variable 'corpus' of the shared kernel; it is not in this prompt. Use list_vars, scan before
peek, and eval_code for Python over it. Return insights, not data."""


@dataclass(frozen=True)
class Task:
    """One sub-agent's work: its name, goal, the pattern it scans for and the cell it runs."""

    agent: str
    goal: str
    pattern: str
    code: str

    @property
    def prompt(self) -> str:
        """The whole prompt that the sub-agent is spawned with."""
        return PROMPT.format(goal=self.goal)


_DEPRECATIONS = Task(
    "deprecations",
    "Which parts of this code base are deprecated, and which are removed soonest?",
    r"removed in (python )?3\.\d+",
    r"""
import re
from collections import Counter
removals = Counter(re.findall(r"removed in (?:Python )?(3\.\d+)", corpus['content'], re.IGNORECASE))
soonest = sorted(removals.items(), key=lambda item: int(item[0].split('.')[1]))[-4:]
print("removals spoken of:", ", ".join(f"{count} in {version}" for version, count in soonest))
deprecations_note = llm_query(f"Advise a team that uses this library, given {soonest}")
""",
)

_ERRORS = Task(
    "errors",
    "How does this code base fail: which exceptions does it raise, and which does it swallow?",
    r"except( Exception)?:\s*(pass)?$",
    r"""
import re
from collections import Counter
raised = Counter(re.findall(r"^\s+raise ([A-Z]\w+)", corpus['content'], re.MULTILINE))
swallowed = len(re.findall(r"except[^\n]*:\n\s+pass\b", corpus['content']))
print(f"{sum(raised.values()):,} raise statements of {len(raised):,} kinds; {swallowed:,} handlers only pass")
print("most raised:", ", ".join(f"{name} {count:,}" for name, count in raised.most_common(5)))
errors_note = llm_query(f"What does this mix of exceptions say about the code? {raised.most_common(10)}")
""",
)

_STRUCTURE = Task(
    "structure",
    "How is this code base built: how many modules, classes and functions, and where is the bulk?",
    r"^##### .*/__init__\.py",
    r"""
import re
from collections import Counter
folders = Counter()
classes = functions = 0
folder = ''
for line in corpus['lines']:
    if line.startswith('##### '):
        folder = line[6:].split('/')[0] if '/' in line else '(top level)'
    elif line.startswith('class '):
        classes += 1
    elif line.lstrip().startswith(('def ', 'async def ')):
        functions += 1
    folders[folder] += 1
print(f"{classes:,} top-level classes, {functions:,} functions and methods")
print("largest parts:", ", ".join(f"{name} {lines:,} lines" for name, lines in folders.most_common(4)))
structure_note = llm_query_batched([f"What is {name} for?" for name, _ in folders.most_common(3)])
""",
)

_TROUBLE = Task(
    "trouble",
    "What goes wrong in this text: errors, failures, warnings, refusals?",
    r"error|fail|warn|fatal|denied|timeout",
    r"""
import re
from collections import Counter
words = Counter(word.lower() for word in re.findall(
    r"\b(?:error|fail(?:ed|ure)?|warn(?:ing)?|fatal|denied|timeout)\b", corpus['content'], re.IGNORECASE))
print("signs of trouble:", ", ".join(f"{word} {count:,}" for word, count in words.most_common(6)) or "none")
trouble_note = llm_query(f"Which of these deserves attention first? {words.most_common(6)}")
""",
)

_WORDS = Task(
    "words",
    "What is this text about: which words stand out?",
    r"\b[A-Z]{4,}\b",
    r"""
import re
from collections import Counter
words = Counter(match.group().lower() for match in re.finditer(r"[^\W\d_]{5,}", corpus['content']))
print(f"{sum(words.values()):,} long words, {len(words):,} different")
print("most frequent:", ", ".join(f"{word} {count:,}" for word, count in words.most_common(8)))
words_note = llm_query(f"What is a text about whose most frequent words are {words.most_common(20)}?")
""",
)

_SHAPE = Task(
    "shape",
    "What is this text made of: how long are its lines, how much repeats, how much is empty?",
    r"^\s*$",
    r"""
from collections import Counter
lengths = [len(line) for line in corpus['lines']]
starts = Counter(line[:12] for line in corpus['lines'] if line.strip())
blank = len(lengths) - sum(starts.values())
print(f"{len(lengths):,} lines, {blank:,} blank, the longest of {max(lengths, default=0):,} characters")
frequent = [start for start, _ in starts.most_common(3)]
shape_note = llm_query_batched([f"What are lines that start with {start!r}?" for start in frequent])
""",
)

PYTHON_TASKS = (_DEPRECATIONS, _ERRORS, _STRUCTURE)
TEXT_TASKS = (_TROUBLE, _WORDS, _SHAPE)

REPORT = r"""
for name, note in [{pairs}]:
    for answer in note if isinstance(note, list) else [note]:
        print(f"{{name}}: {{answer}}")
"""
"""The root's last cell: by now every deferred value is its answer."""


def report_code(tasks: tuple[Task, ...]) -> str:
    """Return the root's last cell, which prints every answer through the value that asked for it."""
    return REPORT.format(pairs=", ".join(f"({task.agent!r}, {task.agent}_note)" for task in tasks))
