# ruff: noqa: E501 - cells are shown as they are run
"""open(), pathlib and every library that opens files: the policy's folders and nothing else."""

import re
import sqlite3
from contextlib import closing

import pytest

from rlm_sandbox.language_wall.files import FileAccess

# A payload that is stopped half-way leaves its files to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def test_open_reads_the_workspace_and_writes_scratch(session, folders):
    """K-21: ``open`` is allowed within the policy's paths."""
    work, scratch = folders["workspace"], folders["scratch"]
    assert session.value(f"""
        import pathlib, json, csv, gzip, os, shutil, tempfile
        with open({str(work / "data.txt")!r}) as f: text = f.read()
        with open({str(scratch / "out.txt")!r}, "w") as f: n = f.write(text * 2)
        path = pathlib.Path({str(scratch)!r}) / "sub"
        path.mkdir(); (path / "a.json").write_text(json.dumps([1]))
        with gzip.open(path / "z.gz", "wt") as f: f.write("zip")
        os.rename(path / "a.json", path / "b.json")
        listed = sorted(os.listdir(path))
        shutil.copy({str(work / "data.txt")!r}, path)
        with tempfile.TemporaryDirectory(dir=path) as d: made = os.path.isdir(d)
        shutil.rmtree(path)
        result = (text, n, listed, made, path.exists(), sum(1 for _ in open({str(work / "data.txt")!r}, "rb")))
    """) == ("hello\n", 12, ["b.json", "z.gz"], True, False, 1)


def test_a_path_outside_is_refused_with_the_folders_that_are_inside(session, folders):
    """The message names the folders and what to do."""
    with pytest.raises(
        PermissionError, match=r"outside the readable folders of this session \(policy field files.read: "
    ) as caught:
        session.run("open('/etc/passwd')")
    assert str(folders["workspace"]) in str(caught.value)
    assert "context" in str(caught.value)
    with pytest.raises(PermissionError, match=r"outside the writable folders.*files\.write.*write below one of them"):
        session.run(f"open({str(folders['workspace'] / 'new.txt')!r}, 'a')")


@pytest.mark.parametrize(
    "opened",
    ["open(<path>, 'a')", "sqlite3.connect(<path>)", "sqlite3.connect('file:' + <path> + '?mode=ro', uri=True)"],
)
def test_a_file_that_can_only_be_read_is_refused_with_the_call_that_copies_it(make_session, folders, opened):
    """sqlite3 asks to write even to a database that is only read, and "write below one of them" was no help."""
    wide, path = make_session(imports=("*",)), folders["workspace"] / "data.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table t as select 7 as x")
    with pytest.raises(PermissionError, match="this file can only be read") as caught:
        wide.run("import sqlite3\n" + opened.replace("<path>", repr(str(path))))
    copied = re.search(r"shutil\.copy\(.*?\)", str(caught.value))[0]
    assert wide.value(f"import shutil\nresult = sqlite3.connect({copied}).execute('select x from t').fetchall()") == [
        (7,)
    ]
    with pytest.raises(PermissionError, match="write below one of them"):
        wide.run(f"sqlite3.connect({str(folders['outside'] / 'secret.txt')!r})")


@pytest.mark.parametrize(
    "source",
    [
        "open('<outside>/secret.txt')",
        "open('<workspace>/../outside/secret.txt')",
        "open(b'<outside>/secret.txt')",
        "import io; io.open('<outside>/secret.txt')",
        "import codecs; codecs.open('<outside>/secret.txt')",
        "import pathlib; pathlib.Path('<outside>/secret.txt').read_text()",
        "import pathlib; list(pathlib.Path('<outside>').iterdir())",
        "import os; os.listdir('<outside>')",
        "import os; list(os.scandir('<outside>'))",
        "import os; next(os.walk('<outside>'))[2][0]",
        "import shutil; shutil.copy('<outside>/secret.txt', '<scratch>/x')",
        "import shutil; shutil.copytree('<outside>', '<scratch>/x')",
        "import shutil; shutil.make_archive('<scratch>/x', 'zip', '<outside>')",
        "import zipfile; zipfile.ZipFile('<scratch>/x.zip', 'w').write('<outside>/secret.txt')",
        "import tarfile; tarfile.open('<scratch>/x.tar', 'w').add('<outside>/secret.txt')",
        "import configparser; c = configparser.ConfigParser(); assert c.read('<outside>/secret.txt')",
        "import gzip; gzip.open('<outside>/secret.txt').read()",
        "import logging; logging.FileHandler('<outside>/x.log')",
        "import tempfile; tempfile.mkstemp(dir='<outside>')",
        "import xml.etree.ElementTree as ET; ET.parse('<outside>/secret.txt')",
        "import pathlib; pathlib.Path('<scratch>/l').symlink_to('<outside>/secret.txt')",
        "import pathlib; pathlib.Path('<scratch>/l').hardlink_to('<outside>/secret.txt')",
        "import os; os.remove('<outside>/secret.txt')",
        "import os; os.rename('<outside>/secret.txt', '<scratch>/x')",
        "import os; os.rename('<workspace>/data.txt', '<scratch>/x')",
        "import os; os.mkdir('<outside>/d')",
        "import shutil; shutil.rmtree('<outside>')",
        "import tokenize; tokenize.open('<outside>/secret.txt')",
        "import fileinput; next(fileinput.input('<outside>/secret.txt'))",
        "import contextlib; contextlib.chdir('<outside>').__enter__()",
        "open(0).read()",
        "open('<workspace>/data.txt', opener=lambda p, f: 0)",
        "f = open('<workspace>/data.txt'); type(f.buffer.raw)('<outside>/secret.txt').read()",
        "import asyncio; asyncio.run(asyncio.to_thread(open, '<outside>/secret.txt'))",
    ],
)
def test_no_library_opens_a_path_outside(session, folders, source):
    """The audit hook holds inside libraries, where no guard of the compiler can see."""
    for name, path in folders.items():
        source = source.replace(f"<{name}>", str(path))
    with pytest.raises((PermissionError, ImportError, AssertionError, ValueError, TypeError)):
        session.run(source)
    assert (folders["outside"] / "secret.txt").exists()
    assert sorted(path.name for path in folders["outside"].iterdir()) == ["secret.txt"]
    assert not list(folders["scratch"].rglob("secret.txt"))


def test_a_path_is_taken_as_text_once(session, folders):
    """A str subclass or a changing ``__fspath__`` cannot name one file when checked and another when opened."""
    assert session.value(f"""
        class Two(str):
            def startswith(self, *a): return True
            def __str__(self): return {str(folders["workspace"] / "data.txt")!r}
        class Path:
            n = 0
            def __fspath__(self):
                Path.n += 1
                return [{str(folders["workspace"] / "data.txt")!r}, {str(folders["outside"] / "secret.txt")!r}][Path.n > 1]
        result = []
        for p in (Two({str(folders["outside"] / "secret.txt")!r}), Path()):
            try: result.append(open(p).read())
            except PermissionError: result.append("held")
    """) == ["held", "hello\n"]


def test_links_in_the_workspace_are_followed_before_the_check(session, folders):
    """A link that was there before leads nowhere either."""
    (folders["workspace"] / "link").symlink_to(folders["outside"] / "secret.txt")
    with pytest.raises(PermissionError):
        session.run(f"open({str(folders['workspace'] / 'link')!r})")


def test_a_folder_whose_name_only_starts_alike_is_outside(tmp_path):
    """``/a/scratch2`` is not inside ``/a/scratch``."""
    files = FileAccess([str(tmp_path / "work")], [str(tmp_path / "scratch")])
    assert files.allows(str(tmp_path / "scratch" / "x"), writing=True)
    assert not files.allows(str(tmp_path / "scratch2"), writing=False)
    assert not files.allows(str(tmp_path / "work" / "x"), writing=True)
    assert files.allows(str(tmp_path / "work"), writing=False)


def test_a_folder_for_reading_and_writing_is_named_once(tmp_path):
    """As the scratch folder is in every policy, also where a link is another name for it."""
    scratch, link = tmp_path / "scratch", tmp_path / "link"
    link.symlink_to(scratch)
    said = str(FileAccess([str(scratch), str(link)], [str(scratch)]).refusal("/etc/passwd", writing=False))
    assert said.count(str(scratch)) == 1


def test_what_is_thrown_away_may_be_written(same, session, folders):
    """``os.devnull`` keeps nothing. No other device opens, and no way to this one that a link could turn."""
    same("""
        import contextlib, os
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere): print("gone")
        with open("/dev/null", "rb") as nowhere: result = nowhere.read()
    """)
    link = folders["scratch"] / "null"
    link.symlink_to("/dev/null")
    for path in ("/dev/zero", "/dev/null/../zero", "/dev/./null", "/dev/stdin", str(link)):
        with pytest.raises(PermissionError):
            session.run(f"open({path!r}, 'w')")
