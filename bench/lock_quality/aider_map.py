"""The map of a tree by Aider, for run_tasks.py. It takes a JSON object a line, and gives a text a line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def main(root: str) -> None:
    """Answer questions until there are no more."""
    # Whatever aider prints is not an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    from aider.io import InputOutput
    from aider.repomap import RepoMap

    class Model:
        """Counts tokens as aider's cheapest estimate does."""

        @staticmethod
        def token_count(text: str) -> int:
            return len(text) // 4

    command = ["git", "-C", root, "ls-files", "-z"]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    maker = RepoMap(
        map_tokens=1000, root=root, main_model=Model(), io=InputOutput(pretty=False, yes=True), refresh="always",
        map_mul_no_files=1, max_context_window=10**6,
    )  # fmt: skip
    # As aider's coder does it: a word of the question that is a file's stem mentions the file.
    by_stem = defaultdict(set)
    for path in files:
        stem = Path(path).stem.lower()
        if len(stem) >= 5:
            by_stem[stem].add(path)
    for line in sys.stdin:
        asked = json.loads(line)
        maker.max_map_tokens = asked["tokens"]
        chat = [str(Path(root) / path) for path in asked["focus"]]
        words = set(re.split(r"\W+", asked["question"])) - {""}
        mentioned = {path for word in words for path in by_stem.get(word.lower(), ())}
        others = [str(Path(root) / path) for path in files if path not in asked["focus"]]
        text = maker.get_repo_map(chat, others, mentioned_fnames=mentioned, mentioned_idents=words, force_refresh=True)
        print(json.dumps(text or ""), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
