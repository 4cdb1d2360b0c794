# ruff: noqa: E501 - cells are shown as they are run
"""Escapes: imports and what modules hold."""

import pytest

# A payload that is stopped half-way leaves coroutines, files and threads behind.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

REAL = {
    "import os": "import os\nloot = os",
    "os.system": "import os\nloot = os.system",
    "from os": "from os import system as loot",
    "import function": "loot = __import__('os')",
    "import function by getattr": "loot = getattr(__builtins__, '__import__')",
    "importlib": "import importlib\nloot = importlib.import_module('os')",
    "importlib machinery": "import importlib.machinery\nloot = importlib.machinery.BuiltinImporter.load_module('posix')",
    "builtin importer by class": "loot = [c for c in object.__subclasses__() if 'BuiltinImporter' in c.__name__][0].load_module('posix')",
    "subprocess": "import subprocess\nloot = subprocess.Popen",
    "ctypes": "import ctypes\nloot = ctypes",
    "socket": "import socket\nloot = socket.socket",
    "pickle": "import pickle\nloot = pickle.Unpickler",
    "code": "import code\nloot = code.InteractiveInterpreter().__init__.__globals__",
    "runpy": "import runpy\nloot = runpy",
    "pty": "import pty\nloot = pty",
    "multiprocessing": "import multiprocessing\nloot = multiprocessing",
    "sys.modules": "import sys\nloot = sys.modules['os']",
    "json's modules": "import json\nloot = json.codecs",
    "json decoder's scanner": "import json\nloot = json.decoder.scanner",
    "random's os": "import random\nloot = random._os",
    "collections' sys": "import collections\nloot = collections._sys",
    "functools' lock": "import functools\nloot = functools.RLock and functools.recursive_repr.__globals__",
    "dataclasses' sys": "import dataclasses\nloot = dataclasses.sys",
    "inspect's importlib": "import inspect\nloot = inspect.importlib",
    "typing's sys": "import typing\nloot = typing.sys",
    "enum's sys": "import enum\nloot = enum.sys",
    "re's compiler": "import re\nloot = re._compiler",
    "string's re": "import string\nloot = string._re",
    "tempfile's os": "import tempfile\nloot = tempfile._os",
    "shutil's os": "import shutil\nloot = shutil.os",
    "pathlib's os": "import pathlib\nloot = pathlib.os if hasattr(pathlib, 'os') else pathlib._abc.functools",
    "glob's os": "import glob\nloot = glob.os",
    "os.path's os": "import os.path\nloot = os.path.os",
    "zipfile's struct": "import zipfile\nloot = zipfile.sys",
    "tarfile's os": "import tarfile\nloot = tarfile.os",
    "csv's io": "import csv\nloot = csv.re",
    "argparse's sys": "import argparse\nloot = argparse._sys",
    "configparser's os": "import configparser\nloot = configparser.os",
    "logging's os": "import logging\nloot = logging.os",
    "traceback's sys": "import traceback\nloot = traceback.sys",
    "warnings' sys": "import warnings\nloot = warnings.sys",
    "threading's start": "import threading\nloot = threading._sys",
    "asyncio's events": "import asyncio\nloot = asyncio.events",
    "asyncio's subprocess": "import asyncio\nloot = asyncio.subprocess",
    "concurrent's process": "import concurrent.futures.process\nloot = concurrent.futures.process",
    "ast's sys": "import ast\nloot = ast.sys",
    "tokenize's open": "import tokenize\nloot = tokenize._builtin_open",
    "uuid's os": "import uuid\nloot = uuid.os",
    "statistics' sys": "import statistics\nloot = statistics.sys",
    "platform's subprocess": "import platform\nloot = platform.subprocess if hasattr(platform, 'subprocess') else platform.os",
    "timeit's gc": "import timeit\nloot = timeit.gc",
    "keyword's globals": "import copy\nloot = copy.copy.__globals__",
    "pprint's sys": "import pprint\nloot = pprint._sys",
    "textwrap's re": "import textwrap\nloot = textwrap.re",
    "heapq's doctest": "import heapq\nloot = heapq.merge.__globals__",
    "queue's threading": "import queue\nloot = queue.threading",
    "sched's threading": "import sched\nloot = sched.threading",
    "weakref's sys": "import weakref\nloot = weakref.sys",
    "mimetypes' os": "import mimetypes\nloot = mimetypes.os",
    "email's policy": "import email.utils\nloot = email.utils.os",
    "xml's pyexpat": "import xml.etree.ElementTree as E\nloot = E.sys",
    "class module": "import json\nloot = __import__(json.JSONDecoder.__module__, fromlist=['x']).scanner",
    "star": "from os import *\nloot = system",
    "module's loader": "import json\nloot = json.__loader__.load_module('os') if False else json.__loader__.get_code.__globals__",
    "module's dict": "import os\nloot = os.__dict__['system']",
    "vars of a module": "import os\nloot = vars(os)['system']",
    "getattr of a module": "import os\nloot = getattr(os, 'sys' + 'tem')",
    "inspect members": "import inspect, os\nloot = dict(inspect.getmembers(os))['system']",
    "attrgetter path": "import operator, collections.abc, collections\nloot = operator.attrgetter('_sys.modules')(collections)['os']",
    "environment": "import os\nloot = os.environ.__class__.__init__.__globals__",
    "platform of a path": "import pathlib\nloot = pathlib.Path.cwd.__func__.__globals__",
}


@pytest.mark.parametrize("payload", REAL.values(), ids=REAL)
def test_a_payload_that_walks_out_of_a_module_gets_nothing(attacks, payload):
    """Each works without the wall and holds behind it."""
    assert attacks.works_without_wall(payload)
    attacks.holds(payload)
