"""Why a magic is not available, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HERE: Final = (
    "%time, %timeit, %who, %whos, %pwd, %matplotlib inline, %config InlineBackend.figure_format, %%html, %%markdown, "
    "and ? after a name work"
)
_PROGRAMS: Final = "it runs a program, and sessions run none: use Python (os, pathlib, shutil), or run it in a terminal"
_PACKAGES: Final = (
    "packages are installed where rlm-kernel is installed, by whoever runs it; `import` tells what is there"
)
_FOLDERS: Final = "use os.listdir() or pathlib.Path, below the folders that the policy lets the session read"
_WRITE: Final = "write the file with open(path, 'w'), below a folder that the policy lets the session write"
_READ: Final = "read the file with open(path).read(), and put the code you want into a cell"
_RESET: Final = "use `del name` for a variable, or restart the session"
_HISTORY: Final = (
    "`In` lists the cells of this kernel; `rlm-kernel journal` shows what ran, `rlm-kernel export` writes a notebook"
)
_SETTINGS: Final = "IPython's settings are fixed in a session"
_EXTENSIONS: Final = "extensions change IPython itself, past the policy; import a module and call its functions"
_DEBUGGER: Final = (
    "no debugger or profiler works in a session: look at the traceback, print values, or use %time and %timeit"
)
_ACTIVE: Final = "what could act in the front end is not shown; display(HTML(text)) shows tables and formatted text"
_CAPTURE: Final = "use contextlib.redirect_stdout(io.StringIO())"

_WHY: Final[dict[str, str]] = {
    **dict.fromkeys(
        "bash sh script ruby perl cmd system sx sc python python2 python3 pypy bg_script".split(), _PROGRAMS
    ),
    **dict.fromkeys("killbgscripts".split(), _PROGRAMS),
    **dict.fromkeys("pip conda mamba micromamba uv".split(), _PACKAGES),
    **dict.fromkeys("ls ll la lx lk lf ldir cat less more man cd pushd popd dirs dhist bookmark".split(), _FOLDERS),
    **dict.fromkeys("writefile file save mkdir rmdir cp mv rm".split(), _WRITE),
    **dict.fromkeys("run load loadpy edit macro".split(), _READ),
    **dict.fromkeys("reset reset_selective xdel".split(), _RESET),
    **dict.fromkeys(
        "history hist recall rerun rep notebook logstart logon logoff logstate logstop store".split(), _HISTORY
    ),
    **dict.fromkeys("colors xmode precision autosave pprint autocall automagic alias unalias".split(), _SETTINGS),
    **dict.fromkeys("doctest_mode page pastebin gui pylab".split(), _SETTINGS),
    **dict.fromkeys("load_ext reload_ext unload_ext autoreload aimport sql cython".split(), _EXTENSIONS),
    **dict.fromkeys("debug pdb prun lprun memit mprun tb subshell".split(), _DEBUGGER),
    **dict.fromkeys("javascript js svg latex SVG".split(), _ACTIVE),
    "capture": _CAPTURE,
    "config": "only InlineBackend.figure_format can be set; plt.rcParams sets everything else about figures",
    "env": "use os.environ",
    "set_env": "use os.environ",
    "matplotlib": "figures are shown in the notebook and in the answer: write `%matplotlib inline`, or nothing",
    "psearch": "press Tab after the beginning of the name",
    "psource": "write the name with ?? after it",
}


def sentence(name: str, *, cell: bool = False) -> str:
    """Return why a magic is not available."""
    if name == "!":
        return f"`!` is off in this session: {_PROGRAMS}"
    written = f"`%%{name}`" if cell else f"`%{name}`"
    return f"{written} is off in this session: {_WHY.get(name) or f'only {HERE}'}"


def within(name: str) -> str:
    """Return that a magic is in a place where none is allowed."""
    return sentence(name) if name == "!" else f"`%{name}` can only be a statement, or the value that a name gets"


def of_forms(written: str, forms: Iterable[str]) -> str:
    """Return the forms in which figures can be shown."""
    known = ", ".join(map(repr, forms))
    return f"figures cannot be shown as {written} in this session, as SVG and PDF may hold scripts: name one of {known}"


def of_figures(backend: str) -> str:
    """Return that figures can be shown in only one way."""
    return f"`%matplotlib {backend}` is off in this session: {_WHY['matplotlib']}"
