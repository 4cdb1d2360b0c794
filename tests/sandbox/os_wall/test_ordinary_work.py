"""Ordinary analysis code does not notice the walls."""

from dataclasses import replace
from typing import Any

import pytest

from rlm_sandbox.policy import GIB, Limits

WORK = {
    "threads": """
        import threading
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
        [thread.start() for thread in threads]
        [thread.join(60) for thread in threads]
        result = sorted(done) == list(range(8))
    """,
    "a pool of threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            result = list(pool.map(abs, [-1, -2])) == [1, 2]
    """,
    "asyncio": """
        import asyncio
        async def main():
            await asyncio.sleep(0)
            return await asyncio.to_thread(len, 'abc')
        result = asyncio.run(main()) == 3
    """,
    "files in the scratch folder": """
        import os, pathlib, shutil, tempfile
        folder = pathlib.Path(scratch)
        (folder / 'a' / 'b').mkdir(parents=True)
        (folder / 'a' / 'one.txt').write_text('one')
        os.rename(folder / 'a' / 'one.txt', folder / 'a' / 'b' / 'two.txt')
        shutil.copy2(folder / 'a' / 'b' / 'two.txt', folder / 'three.txt')
        with tempfile.NamedTemporaryFile(dir=scratch) as file:
            file.write(b'x')
        shutil.rmtree(folder / 'a')
        result = sorted(os.listdir(folder)) == ['secret.txt', 'three.txt']
    """,
    "a database in the scratch folder": """
        import sqlite3
        with sqlite3.connect(scratch + '/data.db') as database:
            database.execute('create table t(x)')
            database.execute('insert into t values (1)')
            result = database.execute('select count(*) from t').fetchone() == (1,)
    """,
    "random numbers and the null device": """
        import os
        with open('/dev/null', 'w') as null:
            null.write('x')
        with open('/dev/urandom', 'rb') as noise:
            result = len(noise.read(8)) == len(os.urandom(8))
    """,
    "time zones": """
        import datetime, zoneinfo
        zone = zoneinfo.ZoneInfo('Europe/Prague')
        result = datetime.datetime(2026, 7, 1, tzinfo=zone).utcoffset().total_seconds() == 7200
    """,
    "timers and signals to itself": """
        import signal, time
        hits = []
        signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not hits:  # pause() would wait for ever where the timer is faster
            time.sleep(0.01)
        signal.raise_signal(signal.SIGALRM)
        result = len(hits) == 2
    """,
    "recovery after a memory error": """
        try:
            bytearray(1 << 40)
        except MemoryError:
            result = sum(range(10)) == 45
    """,
    "a new extension module": "import _queue; result = _queue.SimpleQueue is not None",
}


@pytest.mark.parametrize("code", WORK.values(), ids=[name.replace(" ", "-") for name in WORK])
def test_ordinary_python_works(room: Any, code: str) -> None:
    """The walls take nothing away that an analysis needs."""
    policy = replace(room.policy, limits=Limits())
    assert room.result(code, policy=policy) is True


NUMERIC = {
    "numpy": """
        import numpy as np
        a = np.random.default_rng(0).random((400, 400))
        result = bool(np.allclose(np.linalg.inv(a) @ a, np.eye(400), atol=1e-6))
    """,
    "pandas": """
        import pandas as pd
        table = pd.DataFrame({'k': list('aabb') * 1000, 'v': range(4000)})
        table.to_csv(scratch + '/t.csv', index=False)
        back = pd.read_csv(scratch + '/t.csv')
        result = int(back.groupby('k').v.sum().sum()) == sum(range(4000))
    """,
    "matplotlib": """
        import matplotlib.pyplot as plt
        plt.plot([1, 2, 3])
        plt.title('walls')
        plt.savefig(scratch + '/plot.png')
        result = open(scratch + '/plot.png', 'rb').read(4) == b'\\x89PNG'
    """,
}


@pytest.mark.parametrize("library", NUMERIC)
def test_numeric_libraries_work(room: Any, library: str) -> None:
    """Linear algebra with its threads, data frames and plots run inside the walls."""
    if library not in room.zygote.modules:
        pytest.skip(f"{library} is not installed")
    policy = replace(room.policy, limits=Limits(memory_bytes=GIB))
    assert room.result(NUMERIC[library], policy=policy) is True


def test_modules_can_be_imported_late(own_room: Any) -> None:
    """The Python installation stays readable: the standard library, packages and our own."""
    code = """
        import importlib, sys
        late = ['wave', 'rlm_sandbox.os_wall.folder_size', 'psutil']
        fresh = [name for name in late if name not in sys.modules]
        result = [importlib.import_module(name).__name__ for name in fresh] == fresh and bool(fresh)
    """
    assert own_room.result(code) is True


def test_a_crash_ends_the_process_with_its_signal(own_room: Any) -> None:
    """The supervisor still sees why a kernel died."""
    answer = own_room.answer("import os; os.abort()")
    assert answer["status"] == -6
