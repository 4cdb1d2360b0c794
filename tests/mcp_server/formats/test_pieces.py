"""The folder of variables that are saved again and again: whatever cuts a save off, the one before it is there."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_ipc.errors import KernelError
from rlm_ipc.variable_images import LONG, PIECE, ROOM, hash_of, pieces_in
from rlm_ipc.worker_requests import HandedOut, Piece
from rlm_kernel.worker.snapshots.image import pieces_of
from rlm_mcp.formats.pieces import PieceFolder
from rlm_mcp.formats.snapshot import SnapshotRefused


@pytest.fixture
def folder(tmp_path: Path) -> PieceFolder:
    return PieceFolder(tmp_path / "1.pieces")


def save(folder: PieceFolder, *parts: bytes, at: float = 1.0) -> int:
    """Save an image of these parts; returns how many bytes of it were written."""
    image = b"".join(parts)
    writer = folder.writer(pieces_of([memoryview(part) for part in parts]))
    written = 0
    for begin, pieces in writer.wanted():
        data = image[begin : begin + sum(piece.size for piece in pieces)]
        writer.add(pieces, data)
        written += len(data)
    writer.finish(at, {"log": 2}, ())
    folder.tidy()
    return written


def read(folder: PieceFolder) -> bytes:
    """The image that a folder has."""
    image = folder.image()
    assert image is not None
    data = b"".join(image.pieces())
    assert len(data) == image.size
    return data


def test_an_image_is_read_as_it_was_written(folder: PieceFolder) -> None:
    """With what the next kernel must know of it; a folder that has none says so."""
    assert folder.image() is None
    image = os.urandom(2 * PIECE + 5)
    assert save(folder, image, at=12.5) == len(image)
    assert read(folder) == image
    told = folder.image()
    assert told is not None
    assert (told.created_at, told.shadowed) == (12.5, {"log": 2})
    assert {path.stat().st_mode & 0o777 for path in folder.folder.iterdir()} == {0o600}


def test_a_long_value_is_found_again_wherever_it_begins(folder: PieceFolder) -> None:
    """It is pieces of its own behind others that grow; as a part of one sequence it would be written anew."""
    value = os.urandom(3 * PIECE + LONG)
    save(folder, b"short", value, b"end")
    after = b"a longer beginning", value, b"another end"
    assert save(folder, *after) == len(after[0] + after[2])
    assert read(folder) == b"".join(after)
    assert save(folder, b"x" + b"".join(after)) > 3 * PIECE


def test_a_piece_that_comes_twice_is_written_once(folder: PieceFolder) -> None:
    """An array of zeros is one piece, and is read as long as it was."""
    assert save(folder, bytes(5 * PIECE)) == PIECE
    assert read(folder) == bytes(5 * PIECE)


def test_no_more_comes_at_once_than_there_is_room_for(folder: PieceFolder) -> None:
    """Several processes have copies of what is on the way."""
    runs = folder.writer(pieces_of([memoryview(os.urandom(3 * ROOM + 7))])).wanted()
    assert [begin for begin, _ in runs] == [0, ROOM, 2 * ROOM, 3 * ROOM]
    assert max(sum(piece.size for piece in pieces) for _, pieces in runs) == ROOM


def test_what_no_save_needs_any_more_is_removed(folder: PieceFolder) -> None:
    """A folder has the pieces of one image, and nothing that a save left which was cut off."""
    save(folder, os.urandom(4 * PIECE))
    cut_off = os.urandom(PIECE)
    begun = folder.writer(pieces_of([memoryview(cut_off)]))
    begun.add(begun.wanted()[0][1], cut_off)
    save(folder, b"small")
    assert len(list(folder.folder.iterdir())) == 2
    folder.remove()
    assert not folder.folder.exists()
    assert not folder.exists()


class Cut(Exception):
    """The power fails."""


@pytest.mark.parametrize("change", [b"", b"in front"], ids=["of the same", "of another"])
def test_a_save_that_is_cut_off_anywhere_leaves_the_one_before(
    folder: PieceFolder, monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    """Each file that is written, synced, renamed or removed may be the last; what is read then is one of the two."""
    old, done = os.urandom(2 * PIECE + 9), 0
    new = change + old[: PIECE + 3] + os.urandom(PIECE)
    save(folder, old)
    real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in ("write", "fsync", "replace", "unlink")}
    left = 0

    def cut_before(name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut
            return real[name](*given, **named)

        return call

    for steps in range(100):
        left = steps
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, cut_before(name))
            try:
                save(folder, new)
                done = steps
            except Cut:
                pass
        assert read(folder) in (old, new), f"after {steps} steps"
        if done:
            break
        save(folder, old)
    assert done > 5
    assert read(folder) == new


def test_a_piece_that_is_lost_is_written_again(folder: PieceFolder) -> None:
    """What somebody has removed is not taken for written because the index names it."""
    image = os.urandom(PIECE)
    save(folder, image)
    (piece,) = (path for path in folder.folder.iterdir() if path.name != "index.json")
    piece.unlink()
    assert save(folder, image) == PIECE
    assert read(folder) == image


def damage_index(folder: Path) -> None:
    """An index that names a file elsewhere."""
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pieces": ["../../secret"]}))


def put_a_fifo(folder: Path) -> None:
    """An index that nobody ever finishes reading."""
    (folder / "index.json").unlink()
    os.mkfifo(folder / "index.json")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "an index that is none": lambda folder: (folder / "index.json").write_text("{"),
    "an index with another's name": damage_index,
    "a FIFO as index": put_a_fifo,
    "a changed piece": lambda folder: next(folder.glob("[0-9a-f]*")).write_bytes(b"x"),
    "a missing piece": lambda folder: next(folder.glob("[0-9a-f]*")).unlink(),
    "a longer piece": lambda folder: os.truncate(next(folder.glob("[0-9a-f]*")), 3 * PIECE),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_and_nothing_is_given_out_for_it(folder: PieceFolder, damage: str) -> None:
    """Whatever lies in the folder, the bytes that come out are those that were written, or there is an error."""
    save(folder, os.urandom(PIECE + 1))
    DAMAGES[damage](folder.folder)
    with pytest.raises(SnapshotRefused):
        read(folder)
    assert save(folder, b"again") == 5
    assert read(folder) == b"again"


@given(st.lists(st.integers(0, 3 * LONG), max_size=12))
def test_an_honest_kernel_is_believed(lengths: list[int]) -> None:
    """Its pieces are never more, or longer, than those of one that may be hostile."""
    told = handed_out(pieces_of([memoryview(bytes(length)) for length in lengths]))
    assert sum(piece.size for piece in pieces_in(told)) == sum(lengths)


def handed_out(pieces: Sequence[Piece], size: int | None = None) -> HandedOut:
    """What a kernel says of an image."""
    return HandedOut((), (), (), (), sum(piece.size for piece in pieces) if size is None else size, "", tuple(pieces))


HASH = hash_of(b"")
UNTRUE = {
    "too few bytes": handed_out([Piece(5, HASH)], 6),
    "bytes below nothing": handed_out([Piece(-1, HASH), Piece(6, HASH)]),
    "a piece of nothing": handed_out([Piece(0, HASH), Piece(5, HASH)]),
    "a piece that is too long": handed_out([Piece(PIECE + 1, HASH)]),
    "a piece for each byte": handed_out([Piece(1, HASH)] * LONG),
    "a name that leads elsewhere": handed_out([Piece(5, "../../../../../../../../../../../../etc/abc")]),
    "none": handed_out([], 5),
}


@pytest.mark.parametrize("told", UNTRUE.values(), ids=UNTRUE)
def test_pieces_that_cannot_be_are_refused(told: HandedOut) -> None:
    """A hostile kernel chooses no names of files, and cannot have one made for every byte."""
    with pytest.raises(KernelError):
        pieces_in(told)


def test_bytes_that_are_not_those_of_their_name_are_refused(folder: PieceFolder) -> None:
    """What a kernel promised and what it sends may differ; the save before stays."""
    save(folder, b"before")
    writer = folder.writer([Piece(5, hash_of(b"right"))])
    ((_, pieces),) = writer.wanted()
    for data in (b"wrong", b"righ", b""):
        with pytest.raises(KernelError):
            writer.add(pieces, data)
    assert read(folder) == b"before"
