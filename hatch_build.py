"""Compiles `_native.c` when the project is built or installed; without a compiler all works, a little slower."""

import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = Path("kernel/rlm_kernel/contexts/_native.c")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled module beside its source, and into the wheel, which then is for this Python and system only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, or say why the module is missing."""
        source = Path(self.root) / _SOURCE
        module = source.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
        linker = sysconfig.get_config_var("LDSHARED") or "cc -shared"
        # With CPython's assertions: what is wrong had better end a kernel process than read beyond its objects.
        options = ["-O3", "-fPIC", "-Wall", "-Wextra", f"-I{sysconfig.get_path('include')}"]
        try:
            subprocess.run(
                [*shlex.split(linker), *options, source, "-o", module], check=True, capture_output=True, text=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            module.unlink(missing_ok=True)  # one of another version of the source may be there
            why = getattr(error, "stderr", None) or error
            self.app.display_warning(f"{_SOURCE.name} was not compiled, so lines of contexts are made in Python: {why}")
            return
        if version != "editable":  # which finds it beside its source
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(module)] = f"rlm_kernel/contexts/{module.name}"
