"""Tables of the database as values: their columns and indexes, and the statements that create them and write rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

TABLES: list[Table] = []
"""All tables, in the order in which their modules define them: a table refers to earlier ones."""
NUMBERED = "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"
"""The declaration of a column that numbers rows; a number is never reused."""


class Table:
    """A table; each of the ``columns`` is its declaration in SQL.

    ``primary_key`` names the columns of a key that no single column declares. No two rows agree in all columns of
    ``unique``. ``indexes`` and ``unique_indexes`` map the name of an index to its columns and its condition, in SQL.
    """

    def __init__(
        self,
        name: str,
        /,
        *,
        primary_key: tuple[str, ...] = (),
        unique: tuple[str, ...] = (),
        indexes: Mapping[str, str] | None = None,
        unique_indexes: Mapping[str, str] | None = None,
        **columns: str,
    ) -> None:
        self.name, self.columns = name, columns
        self.primary_key = primary_key or tuple(each for each, kind in columns.items() if "PRIMARY KEY" in kind)
        self._declared = [f"{each} {kind}" for each, kind in columns.items()]
        if primary_key:
            self._declared.append(f"PRIMARY KEY ({', '.join(primary_key)})")
        if unique:
            self._declared.append(f"UNIQUE ({', '.join(unique)})")
        self._indexes = {"INDEX": indexes or {}, "UNIQUE INDEX": unique_indexes or {}}
        TABLES.append(self)

    def creation(self) -> Iterator[str]:
        """Return the statements that create the table and its indexes where they are missing."""
        declared = ",\n    ".join(self._declared)
        yield f"CREATE TABLE IF NOT EXISTS {self.name} (\n    {declared}\n)"
        for kind, indexes in self._indexes.items():
            for name, of in indexes.items():
                yield f"CREATE {kind} IF NOT EXISTS {name} ON {self.name} {of}"

    def additions(self, known: set[str]) -> Iterator[str]:
        """Return the statements that add the columns that a table with the ``known`` ones lacks and may leave empty."""
        for name, kind in self.columns.items():
            if name not in known and "NOT NULL" not in kind:
                yield f"ALTER TABLE {self.name} ADD COLUMN {name} {kind}"


def columns_of(table: Table) -> str:
    """Return the columns that this version knows, for a ``SELECT``: a later version may have added more."""
    return ", ".join(f"{table.name}.{name}" for name in table.columns)


def insert_into(table: Table) -> str:
    """Return a statement that inserts a row, with a parameter for each column."""
    values = ", ".join(f":{name}" for name in table.columns)
    return f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({values})"


def upsert_into(table: Table, *columns: str) -> str:
    """Return a statement that inserts a row, or changes ``columns`` (default: all) of the one that has the same key."""
    key = table.primary_key
    changed = ", ".join(f"{n} = excluded.{n}" for n in columns or [name for name in table.columns if name not in key])
    return f"{insert_into(table)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
