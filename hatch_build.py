"""Compiles the modules in C when the project is built or installed, and puts the documentation into the wheel."""

import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompilationError(Exception):
    """A module in C could not be compiled; the message says why, and what to do."""


_SOURCES = (
    Path("sandbox/rlm_sandbox/language_wall/_core.c"),
    Path("contexts/rlm_contexts/text/_native.c"),
    Path("kernel/rlm_kernel/_immortal.c"),
    Path("kernel/rlm_kernel/worker/_bindings.c"),
    Path("kernel/rlm_kernel/worker/_forks.c"),
    Path("kernel/rlm_kernel/worker/snapshots/_checker.c"),
)

_PAGES = ("README.md", "SECURITY.md", "LIMITATIONS.md", "CHANGELOG.md")
"""Beside those of the folder `docs`, which `rlm-kernel docs` prints, too."""


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled modules beside their sources and into the wheel, which is for this Python and system only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them, or end the build: nothing works without them."""
        modules = {source: self._compile(source) for source in _SOURCES}
        if version != "editable":  # which finds them beside their sources
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            for source, module in modules.items():
                _, *package = source.parent.parts  # the first folder is a source root
                build_data["force_include"][str(module)] = str(Path(*package, module.name))
            for page in (*Path(self.root).glob("docs/*.md"), *(Path(self.root) / name for name in _PAGES)):
                build_data["force_include"][str(page)] = f"rlm_mcp/docs/{page.name}"

    def _compile(self, name: Path) -> Path:
        source = Path(self.root) / name
        module = source.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
        linker = sysconfig.get_config_var("LDSHARED") or "cc -shared"
        # With CPython's assertions: what is wrong had better end a kernel process than read beyond its objects.
        options = ["-O3", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", f"-I{sysconfig.get_path('include')}"]
        try:
            subprocess.run(
                [*shlex.split(linker), *options, source, "-o", module], check=True, capture_output=True, text=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            module.unlink(missing_ok=True)  # one of another version of the source may be there
            why = getattr(error, "stderr", None) or error
            raise CompilationError(
                f"{name.name} was not compiled: {why}\nInstall a C compiler and Python's headers, and install again "
                "(on Debian and Ubuntu: apt install gcc python3-dev)."
            ) from None
        return module
