"""What names in sessions stand for, in plain Python: the model that the service is held against.

A text is a key of `Model.sizes`; equal keys are equal contents. Nothing here knows of rows, digests or kernels.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

OVER, UNKNOWN, NO_HANDLE = "quota_exceeded", "variable_not_found", "handle_not_found"


@dataclass(frozen=True)
class Held:
    """What one name stands for. ``table`` is the name of its table of files, ``table_of`` whose table it is."""

    text: str
    type: str
    charged: bool = True
    handle: str | None = None
    table: str | None = None
    table_of: str | None = None


@dataclass
class Handle:
    """A handle: whose it is, which name it was made of, and what that stood for then. ``to``: None is everybody."""

    owner: "Life"
    name: str
    held: Held
    charged: bool
    to: str | None


@dataclass(eq=False)
class Life:
    """One life of a session. ``variables`` are those of code, ``past`` what they were before each of the last cells.

    ``follows`` says that the life before it ended because it was not used, which a cell tells once.
    """

    label: str
    used: float
    held: dict[str, Held] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    past: list[dict[str, int]] = field(default_factory=list)
    follows: bool = False

    def take_name(self, name: str, held: Held) -> None:
        """Let a name stand for a text, also in code, and in what a rollback goes back to."""
        self.held[name] = held
        for variables in (self.variables, *self.past):
            variables.pop(name, None)

    def free(self, form: str, number: int | None) -> str:
        """The first free name of a form."""
        while (name := form.format(number or "")) in self.held or name in self.defined:
            number = (number or 1) + 1
        return name


class Model:
    """Every session that lives, and every handle."""

    def __init__(self, sizes: dict[str, int], quota: int, idle: float) -> None:
        self.sizes, self.quota, self.idle = sizes, quota, idle
        self.now = 0.0
        self.lives: dict[str, Life] = {}
        self.handles: dict[str, Handle] = {}
        self.idled: set[str] = set()
        """Sessions that ended because they were not used, and have not been used since."""

    def call(self, label: str) -> Life:
        """Some call in a session: what has idled ends, the session is there and is used."""
        for life in list(self.lives.values()):
            if self.now - life.used > self.idle:
                self.end(life)
                self.idled.add(life.label)
        if label not in self.lives:
            self.lives[label] = Life(label, self.now, follows=label in self.idled)
            self.idled.discard(label)
        life = self.lives[label]
        life.used = self.now
        return life

    def end(self, life: Life) -> None:
        """End a session with its names and handles."""
        del self.lives[life.label]
        self.handles = {name: made for name, made in self.handles.items() if made.owner is not life}

    def charged(self, life: Life) -> int:
        """The bytes of the distinct texts that the session has loaded, or keeps for others."""
        mine = {held.text for held in life.held.values() if held.charged}
        mine |= {made.held.text for made in self.handles.values() if made.owner is life and made.charged}
        return sum(self.sizes[text] for text in mine)

    def load(self, life: Life, name: str, text: str, kind: str) -> str | None:
        """Let a name stand for a text of the session's own; the error otherwise, and nothing has changed."""
        before = dict(life.held)
        self._drop_table(life, name)
        table = life.free(f"{name}_files" + "{}", None) if text == "folder" else None
        life.held[name] = new = Held(text, kind, table=table)
        added = {name: new}
        if table is not None:
            added[table] = life.held[table] = Held("table", "json", table_of=name)
        if self.charged(life) > self.quota:
            life.held = before
            return OVER
        for each, held in added.items():
            life.take_name(each, held)
        return None

    def _drop_table(self, life: Life, name: str) -> str | None:
        held = life.held.get(name)
        table = held.table if held else None
        if table is None or table not in life.held or life.held[table].table_of != name:
            return None
        del life.held[table]
        return table

    def unload(self, life: Life, name: str) -> str | None:
        """Let go of a text with its handles, or else of a variable."""
        gone = {name, self._drop_table(life, name)}
        self.handles = {
            handle: made for handle, made in self.handles.items() if made.owner is not life or made.name not in gone
        }
        if life.held.pop(name, None) is not None:
            return None
        if name not in life.variables:
            return UNKNOWN
        self.cell(life)
        del life.variables[name]
        life.defined.discard(name)
        return None

    def resolve(self, life: Life, handle: str) -> Handle | None:
        """What a handle leads to for a session, if it may know."""
        made = self.handles.get(handle)
        known = made is not None and (made.owner is life or made.to in {None, life.label})
        return made if known else None

    def name_by(self, life: Life, handle: str) -> str:
        """The session's name for what a handle leads to, given now if it has none."""
        made = self.handles[handle]
        for name, held in life.held.items():
            if held.handle == handle:
                return name
        if made.owner is life and made.name in life.held and life.held[made.name].text == made.held.text:
            return made.name
        taken = made.name in life.held or made.name in life.defined
        name = life.free(made.name + "_{}", 2) if taken else made.name
        life.take_name(name, replace(made.held, charged=False, handle=handle))
        return name

    def unload_handle(self, life: Life, handle: str) -> None:
        """Let go of the names that came by it; the owner's is gone for everybody."""
        if self.handles[handle].owner is life:
            del self.handles[handle]
        life.held = {name: held for name, held in life.held.items() if held.handle != handle}

    def fork(self, life: Life, label: str) -> None:
        """A session with the same names and variables, which loaded none of the texts itself."""
        held = {name: replace(each, charged=False) for name, each in life.held.items()}
        self.lives[label] = Life(label, self.now, held, dict(life.variables), set(life.defined))

    def cell(self, life: Life, kept: int = 3) -> None:
        """A cell runs: it may be undone."""
        life.past = [*life.past, dict(life.variables)][-kept:]

    def texts(self) -> Iterator[str]:
        """Every text that somebody holds."""
        for life in self.lives.values():
            yield from (held.text for held in life.held.values())
        yield from (made.held.text for made in self.handles.values())
