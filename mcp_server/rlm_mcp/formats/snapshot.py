"""The file of a snapshot: a zip archive with one ``manifest.json`` and the bytes that it lists, nothing else.

The manifest names every other member with its size and SHA-256. `read` believes nothing: it checks the archive, the
manifest's fields, the sizes and the sums before it gives anything out, and never decompresses more than was announced.
Nothing in here looks into a pickled variable: that is for a worker. docs/snapshots.md describes the format.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlm_contexts.errors import SourceError
from rlm_contexts.store.files import sync
from rlm_contexts.store.opening import opened as opened_file
from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.errors import ClientFault
from rlm_memory.journal import HIGHEST_COUNT

MANIFEST = "manifest.json"
IMAGE = "variables/image"
"""The member that holds the variables, as a kernel has written them."""
TEMPORARY = ".snapshot-"
"""How the name of a file begins that is being written."""
MOST_MEMBERS = 20_000
MOST_MANIFEST_BYTES = 256 << 20
MOST_BYTES = 8 << 30
_PIECE = 1 << 20
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every member: two snapshots of one state are the same bytes, but for the manifest."""
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, KeyError)

Name = Annotated[str, Field(min_length=1, max_length=100)]
Sum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Preview = Annotated[dict[Literal["name", "type", "preview"], Name | Literal[""]], Field(min_length=3)]


class SnapshotRefused(ClientFault):
    """A file is not a readable snapshot; the message says what is wrong with it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} cannot be restored: {problem}; nothing was changed")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class SavedPart(_Part):
    """Another member of the archive: its bytes and their SHA-256."""

    size: int = Field(ge=0)
    sha256: Sum


class SavedVariable(_Part):
    """A variable in the image; ``code`` is a function, a class or a module."""

    name: Name
    type: str = Field(max_length=200)
    code: bool


class SavedContext(_Part):
    """A loaded text under a name: its bytes in the member ``file``, or only known by its ``digest``."""

    name: Name
    digest: str = Field(pattern=r"^[0-9a-f]{32}(-[0-9]{1,9})?$")
    size: int = Field(ge=0)
    line_count: int = Field(ge=0)
    type: str = Field(max_length=200)
    metadata: dict[str, Any]
    origin: Literal["loaded", "attached", "output"]
    file: str | None = None


class SavedQuery(_Part):
    """A deferred query and its state."""

    id: str = Field(pattern=r"^q_t?[0-9]{3,9}$")
    asked_by: Literal["code", "tool"]
    number: int = Field(ge=0, lt=10**9)
    prompt: str
    model: str | None
    state: Literal["pending", "answered", "failed", "cancelled"]
    answer: str | None
    error: str | None
    created_at: float
    resolved_at: float | None
    mode: Literal["deferred", "blocking", "provider"]
    form: dict[str, Any] | None
    answered_by: str | None
    recursive: bool
    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cost: float = Field(ge=0.0)


class SavedCell(_Part):
    """One cell of the journal; ``count`` is the number that its kernel gave it."""

    author: Literal["agent", "notebook"]
    code: str
    started_at: float
    ended_at: float
    status: str = Field(max_length=20)
    output: str
    queries: tuple[str, ...] = Field(strict=False)
    attachment: str | None = Field(max_length=100)
    count: int | None = Field(ge=0, le=HIGHEST_COUNT)


class SavedMessage(_Part):
    """What a model was told."""

    role: str = Field(max_length=20)
    content: str


class SavedTurn(_Part):
    """One turn of a model that worked in the session by itself; ``variables`` are those after it."""

    model: str
    said: tuple[SavedMessage, ...] = Field(strict=False)
    reply: str
    final: str | None
    input_tokens: int
    output_tokens: int
    started_at: float
    ended_at: float
    cost: float = Field(ge=0.0)
    variables: tuple[Preview, ...] = Field(strict=False)


class Missing(_Part):
    """Something of the session that is not in the snapshot, and why."""

    name: str
    reason: str


class Manifest(_Part):
    """What the snapshot holds. Times are epoch seconds.

    ``shadowed`` are the contexts whose names are those of variables too, with the revision of each.
    """

    format: Literal["rlm-kernel snapshot"] = "rlm-kernel snapshot"
    version: Literal[3] = 3
    program: str
    python: str
    created_at: float
    session: str = Field(max_length=128)
    policy: str = Field(max_length=4096)
    policy_text: str = Field(max_length=1 << 20)
    workspace: str
    variables: list[SavedVariable]
    contexts: list[SavedContext]
    shadowed: dict[Name, int] = Field(default_factory=dict)
    queries: list[SavedQuery]
    journal: list[SavedCell]
    turns: list[SavedTurn]
    missing: list[Missing]
    files: dict[str, SavedPart]
    seal: str = Field("", max_length=128)

    def sealed(self, key: bytes) -> Self:
        """The manifest with a hash that only the holder of the key can make, over all else in it."""
        return self.model_copy(update={"seal": self._mark(key)})

    def is_sealed(self, key: bytes) -> bool:
        """Whether the holder of the key has sealed it as it is. The sums in it then hold for every member."""
        return hmac.compare_digest(self.seal, self._mark(key))

    def _mark(self, key: bytes) -> str:
        text = self.model_dump_json(exclude={"seal"})
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=32).hexdigest()


class Writer:
    """Writes one snapshot; `write` makes it appear at once and whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self._temporary = tempfile.NamedTemporaryFile(dir=folder, prefix=TEMPORARY, delete=False)  # noqa: SIM115
        self._archive = zipfile.ZipFile(self._temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self.files: dict[str, SavedPart] = {}

    def add(self, name: str, pieces: Iterable[bytes], *, stored: bool = False) -> str:
        """Add a member and return its name; one that is ``stored`` is not compressed."""
        with self.member(name, stored=stored) as write:
            for piece in pieces:
                write(piece)
        return name

    @contextmanager
    def member(self, name: str, *, stored: bool = False) -> Iterator[Callable[[bytes], None]]:
        """Add a member as what is given to the function that this provides."""
        size, digest = 0, hashlib.sha256()
        with self._archive.open(_info(name, stored=stored), "w", force_zip64=True) as member:

            def write(piece: bytes) -> None:
                nonlocal size
                member.write(piece)
                digest.update(piece)
                size += len(piece)

            yield write
        self.files[name] = SavedPart(size=size, sha256=digest.hexdigest())

    def finish(self, manifest: Manifest, path: Path) -> int:
        """Add the manifest, put the file in its place, durably, and return its size in bytes."""
        text = manifest.model_dump_json(indent=1).encode()
        if len(text) > MOST_MANIFEST_BYTES:
            raise ClientFault(
                f"the queries and the journal of the session have {len(text):,} bytes, which is too much to save"
            )
        self._archive.writestr(_info(MANIFEST), text)
        self._archive.close()
        self._temporary.flush()
        os.fsync(self._temporary.fileno())
        size = os.fstat(self._temporary.fileno()).st_size
        Path(self._temporary.name).replace(path)
        self._temporary.close()
        sync(path.parent)
        return size

    def abandon(self) -> None:
        """Remove what was written so far; nothing after `finish`."""
        if self._temporary.closed:
            return
        Path(self._temporary.name).unlink(missing_ok=True)
        for part in (self._archive, self._temporary):
            with suppress(OSError, ValueError):  # a full disk: what is closed would still be written
                part.close()


def _info(name: str, *, stored: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EARLIEST)
    info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    return info


class Archive:
    """An open snapshot whose manifest and sums have been checked; use `Archive.open`."""

    def __init__(self, path: Path, file: BinaryIO, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self._path, self._file, self._archive, self.manifest = path, file, archive, manifest

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Open a snapshot and check all of it, which reads it once; a context manager that closes it.

        Raises:
            SnapshotRefused: it is none, is damaged, or holds something that its manifest does not name.
        """
        try:
            with opened_file(path) as descriptor:  # not by zipfile: somebody may have put a FIFO there meanwhile
                file = os.fdopen(os.dup(descriptor), "rb")
        except SourceError as error:
            raise SnapshotRefused(path, f"it cannot be read as a snapshot file ({error.what})") from error
        try:
            archive = zipfile.ZipFile(file)
        except _BROKEN as error:
            file.close()
            raise SnapshotRefused(path, f"it cannot be read as a snapshot file ({error})") from error
        try:
            opened = cls(path, file, archive, _manifest_of(path, archive))
            opened._check()
        except BaseException:
            archive.close()
            file.close()
            raise
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._file.close()

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member; raises `SnapshotRefused` at the end if they are not what was announced."""
        part, digest, left = self.manifest.files[name], hashlib.sha256(), self.manifest.files[name].size
        try:
            with self._archive.open(name) as member:
                while piece := member.read(_PIECE):
                    left -= len(piece)
                    if left < 0:
                        break
                    digest.update(piece)
                    yield piece
        except _BROKEN as error:
            raise SnapshotRefused(self._path, f"{name} is damaged ({error})") from error
        if left or digest.hexdigest() != part.sha256:
            raise SnapshotRefused(self._path, f"{name} does not match the manifest")

    def _check(self) -> None:
        manifest = self.manifest
        names = [info.filename for info in self._archive.infolist()]
        if sorted(names) != sorted([MANIFEST, *manifest.files]):
            raise SnapshotRefused(self._path, "its members are not those that its manifest lists")
        wanted = {item.file for item in manifest.contexts} | ({IMAGE} if manifest.variables else set())
        if not wanted - {None} <= set(manifest.files):
            raise SnapshotRefused(self._path, "its manifest names a member that is missing")
        if sum(part.size for part in manifest.files.values()) > MOST_BYTES:
            raise SnapshotRefused(self._path, f"it holds more than {MOST_BYTES:,} bytes")
        for name in manifest.files:
            for _ in self.pieces(name):
                pass


@dataclass(frozen=True, slots=True)
class SavedImage:
    """Saved variables as they lie in files: what a session needs to have them again, wherever they come from.

    It has ``size`` bytes, read by ``pieces``, which raises SnapshotRefused if they are not what was written.
    ``created_at`` is in epoch seconds. ``shadowed`` are contexts whose names are those of variables, with the revision
    of each.
    """

    created_at: float
    size: int
    pieces: Callable[[], Iterator[bytes]]
    shadowed: Mapping[str, int]
    missing: Sequence[Missing]


def image_in(archive: Archive) -> SavedImage:
    """Return the image in a snapshot; it has no bytes if the snapshot has no variables."""
    told = archive.manifest
    size = told.files[IMAGE].size if told.variables and IMAGE in told.files else 0
    return SavedImage(told.created_at, size, partial(archive.pieces, IMAGE), told.shadowed, told.missing)


def _manifest_of(path: Path, archive: zipfile.ZipFile) -> Manifest:
    if len(archive.infolist()) > MOST_MEMBERS:
        raise SnapshotRefused(path, f"it has more than {MOST_MEMBERS:,} members")
    try:
        with archive.open(MANIFEST) as member:
            text = member.read(MOST_MANIFEST_BYTES + 1)
    except _BROKEN as error:
        raise SnapshotRefused(path, f"it has no readable manifest ({error})") from error
    if len(text) > MOST_MANIFEST_BYTES:
        raise SnapshotRefused(path, "its manifest is too large")
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise SnapshotRefused(path, f"its manifest is malformed: {where}: {first['msg']}") from error
