"""`python -m rlm_mcp.demo [FILE]`: what `make demo` and `rlm-kernel demo` run."""

import sys
from pathlib import Path

from rlm_mcp.demo.run import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
