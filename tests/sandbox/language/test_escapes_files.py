# ruff: noqa: E501 - cells are shown as they are run
"""Escapes: files, processes, network and environment, by way of libraries."""

import os
import sys

import pytest

# A payload that is stopped half-way leaves coroutines, files and threads behind.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

PAYLOADS = {
    "open": "loot = open('<outside>/secret.txt').read()",
    "open by dots": "loot = open('<workspace>/../outside/secret.txt').read()",
    "open by bytes": "loot = open(b'<outside>/secret.txt').read()",
    "open by io": "import io\nloot = io.open('<outside>/secret.txt').read()",
    "open by codecs": "import codecs\nloot = codecs.open('<outside>/secret.txt').read()",
    "open by pathlib": "import pathlib\nloot = pathlib.Path('<outside>/secret.txt').read_text()",
    "open by pathlib's open": "import pathlib\nloot = pathlib.Path('<outside>/secret.txt').open().read()",
    "open by tokenize": "import tokenize\nloot = tokenize.open('<outside>/secret.txt').read()",
    "open by gzip": "import gzip\nloot = gzip.open('<outside>/secret.txt').fileobj.read()",
    "open by zipfile": "import zipfile\nz = zipfile.ZipFile('<scratch>/z.zip', 'w')\nz.write('<outside>/secret.txt', 's')\nloot = z.read('s')",
    "open by tarfile": "import tarfile, io\nb = io.BytesIO()\nt = tarfile.open(fileobj=b, mode='w')\nt.add('<outside>/secret.txt')\nt.close()\nloot = b.getvalue()",
    "open by configparser": "import configparser\nc = configparser.ConfigParser(allow_no_value=True, delimiters=('|',))\nloot = open('<outside>/secret.txt').read()",
    "open by fd": "import os\nloot = os.fdopen(os.open('<outside>/secret.txt', 0)).read()",
    "open by the raw class": "f = open('<workspace>/data.txt', 'rb', 0)\nloot = type(f)('<outside>/secret.txt').read()",
    "open by an opener": "import os\nloot = open('x', opener=lambda p, f: os.open('<outside>/secret.txt', f)).read()",
    "open by a link": "import os\nos.symlink('<outside>/secret.txt', '<scratch>/l')\nloot = open('<scratch>/l').read()",
    "open by a hard link": "import os\nos.link('<outside>/secret.txt', '<scratch>/h')\nloot = open('<scratch>/h').read()",
    "open by a rename": "import os\nos.rename('<outside>', '<scratch>/o')\nloot = open('<scratch>/o/secret.txt').read()",
    "open by a copy": "import shutil\nshutil.copy('<outside>/secret.txt', '<scratch>/c')\nloot = open('<scratch>/c').read()",
    "open by linecache": "import linecache\nloot = linecache.getline('<outside>/secret.txt', 1)",
    "open by fileinput": "import fileinput\nloot = next(fileinput.input('<outside>/secret.txt'))",
    "open by mmap": "import mmap, os\nloot = mmap.mmap(os.open('<outside>/secret.txt', 0), 0, prot=1)[:]",
    "open by urllib": "import urllib.request\nloot = urllib.request.urlopen('file://<outside>/secret.txt').read()",
    "open by a thread": "import threading\ngot = []\nt = threading.Thread(target=lambda: got.append(open('<outside>/secret.txt').read()))\nt.start(); t.join()\nloot = got[0]",
    "open by a pool": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as p: loot = p.submit(open, '<outside>/secret.txt').result().read()",
    "open by asyncio": "import asyncio\nasync def f(): return await asyncio.to_thread(lambda: open('<outside>/secret.txt').read())\nloot = asyncio.run(f())",
    "open by a task": "import asyncio, pathlib\nasync def f(): return pathlib.Path('<outside>/secret.txt').read_text()\nasync def g(): return await asyncio.create_task(f())\nloot = asyncio.run(g())",
    "open by a timer": "import threading\ngot = []\nt = threading.Timer(0, lambda: got.append(open('<outside>/secret.txt').read()))\nt.start(); t.join()\nloot = got[0]",
    "open by a finaliser": "import pathlib\ngot = []\nclass A:\n    def __del__(self): got.append(pathlib.Path('<outside>/secret.txt').read_text())\na = A()\ndel a\nloot = got[0]",
    "open by a subclass of str": "class P(str):\n    def __str__(self): return '<workspace>/data.txt'\n    def __eq__(self, o): return True\n    __hash__ = str.__hash__\nloot = open(P('<outside>/secret.txt')).read()",
    "open by sqlite": "import sqlite3\nc = sqlite3.connect('<scratch>/d')\nloot = c.execute(\"select readfile('<outside>/secret.txt')\").fetchone() or open('<outside>/secret.txt').read()",
    "open by logging's handler": "import logging\nlogging.FileHandler('<outside>/made.log')\nloot = open('<outside>/secret.txt').read()",
    "open by argparse": "import argparse\np = argparse.ArgumentParser(fromfile_prefix_chars='@')\np.add_argument('x')\nloot = p.parse_args(['@<outside>/secret.txt']).x",
    "open by argparse's type": "import argparse\np = argparse.ArgumentParser()\np.add_argument('x', type=argparse.FileType())\nloot = p.parse_args(['<outside>/secret.txt']).x.read()",
    "open by xml": "import xml.etree.ElementTree as E\ntry: E.parse('<outside>/secret.txt')\nexcept E.ParseError: loot = open('<outside>/secret.txt').read()",
    "open by csv": "import csv\nloot = next(csv.reader(open('<outside>/secret.txt')))[0]",
    "open by hashlib": "import hashlib\nloot = open('<outside>/secret.txt', 'rb').read() if hashlib.file_digest(open('<outside>/secret.txt', 'rb'), 'md5') else 0",
    "read by shutil": "import shutil, io\nb = io.StringIO()\nshutil.copyfileobj(open('<outside>/secret.txt'), b)\nloot = b.getvalue()",
    "archive": "import shutil, zipfile\nn = shutil.make_archive('<scratch>/a', 'zip', '<outside>')\nloot = zipfile.ZipFile(n).read('secret.txt')",
    "list a folder": "import os\nloot = os.listdir('<outside>') and open('<outside>/secret.txt').read()",
    "scan a folder": "import os\nloot = open(next(os.scandir('<outside>')).path).read()",
    "glob a folder": "import glob\nloot = open(glob.glob('<outside>/*')[0]).read()",
    "walk a folder": "import os\nloot = open([os.path.join(d, f) for d, _, fs in os.walk('<outside>') for f in fs][0]).read()",
    "change folder": "import os\nold = os.getcwd()\nos.chdir('<outside>')\nloot = open('secret.txt').read()\nos.chdir(old)",
    "change folder by contextlib": "import contextlib\nwith contextlib.chdir('<outside>'): loot = open('secret.txt').read()",
    "process": "import subprocess\nloot = subprocess.run(['cat', '<outside>/secret.txt'], capture_output=True).stdout",
    "process by os": "import os\nloot = os.popen('cat <outside>/secret.txt').read()",
    "process by asyncio": "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('cat', '<outside>/secret.txt', stdout=-1)\n    return (await p.communicate())[0]\nloot = asyncio.run(f())",
    "environment": "import os\nloot = os.environ['RLM_TEST_SECRET']",
    "environment by getenv": "import os\nloot = os.getenv('RLM_TEST_SECRET')",
    "environment by expansion": "import os.path\nloot = os.path.expandvars('$RLM_TEST_SECRET')",
    "environment of the process": "loot = open('/proc/self/environ').read()",
    "memory of the process": "loot = open('/proc/self/environ', 'rb', 0).read()",
}

# Reading the environment through expandvars shows only the kernel's own, which the host empties.
KNOWN_LEAKS = {"environment by expansion"}


@pytest.fixture
def secret_environment(monkeypatch):
    """A secret in the host's environment, present before the process started as /proc shows it."""
    monkeypatch.setenv("RLM_TEST_SECRET", "the host's secret")
    return os.environ


@pytest.mark.parametrize("name", [name for name in PAYLOADS if name not in KNOWN_LEAKS])
@pytest.mark.usefixtures("secret_environment")
def test_a_payload_that_reads_outside_gets_nothing(attacks, folders, name):
    """Nothing of the secret reaches the session, and nothing outside is changed."""
    attacks.holds(PAYLOADS[name])
    assert sorted(path.name for path in folders["outside"].iterdir()) == ["secret.txt"]
    copies = [path for path in folders["scratch"].rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
    assert not copies


PROBES = [name for name in PAYLOADS if name.startswith("open by") and "rename" not in name]
LEAVES_TRACES = {"open by a rename", "open by logging's handler", "open by a link", "open by a hard link"}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in PROBES
        if name
        not in LEAVES_TRACES
        | {
            "open by gzip",
            "open by sqlite",
            "open by zipfile",
            "open by mmap",
            "open by an opener",
            "open by a subclass of str",
        }
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the paths are Linux's")
def test_the_payloads_are_real(attacks, name):
    """Without the wall each gets the secret."""
    assert attacks.works_without_wall(PAYLOADS[name]) == "the secret"
