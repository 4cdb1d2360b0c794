"""Imported last by the zygote whose forks try cases behind the language wall: it changes and seals the libraries.

A kernel's zygote does it once too, before it forks: for each case anew it would take longer than the case. The control
runs without it, and so in forks of another zygote.
"""

import escape_judge  # noqa: F401 - it raises the walls that sealing has to find

from rlm_sandbox.language_wall.modules.libraries import harden_libraries
from rlm_sandbox.language_wall.sealing import freeze

harden_libraries()
freeze()
