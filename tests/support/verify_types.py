"""Ask a second type checker whether the public types of a package are complete: `make verify-types`.

The checker is basedpyright. It counts a symbol as known only if its type is declared: one that checkers might infer
differently is not, because a user's checker may be another one than ours.
"""

import json
import subprocess
import sys

UNKNOWN_HERE = {
    "rlm_client.adapters.rlms_environment.SessionEnvironment": "its base class is of a library that is not installed",
}
"""Symbols that need not be known, with the reason. It only becomes less."""


def incomplete(checker: str, package: str) -> tuple[float, dict[str, list[str]]]:
    """Return the share of symbols whose types are known, and what is wrong with each other one."""
    command = [checker, "--ignoreexternal", "--outputjson", "--verifytypes", package]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)["typeCompleteness"]
    if not report["symbols"]:
        raise SystemExit(f"{checker} finds no types in {package}: {report}")
    wrong = {
        symbol["name"]: [found["message"] for found in symbol["diagnostics"] if found["severity"] == "error"]
        for symbol in report["symbols"]
        if symbol["isExported"] and (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
    }
    return report["completenessScore"], wrong


def main() -> None:
    """Print what is incomplete; fail if there is more than expected, or less."""
    score, wrong = incomplete(*sys.argv[1:])
    print(f"{score:.2%} of the symbols have declared types")
    for name in sorted(wrong.keys() - UNKNOWN_HERE):
        print(f"{name}: {'; '.join(wrong[name])}")
    for name in sorted(UNKNOWN_HERE.keys() - wrong):
        print(f"{name}: is known, remove it from tests/support/verify_types.py")
    sys.exit(wrong.keys() != UNKNOWN_HERE.keys())


if __name__ == "__main__":
    main()
