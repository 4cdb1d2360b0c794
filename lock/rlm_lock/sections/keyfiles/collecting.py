"""Finds the key files of a project: by their names, by what its manifests name, and by how much imports them."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from rlm_lock.model import FileEntry
from rlm_lock.names import shown
from rlm_lock.sections.history import iso
from rlm_lock.sections.keyfiles.model import CriticalFiles, KeyFile, KeyFiles, Role
from rlm_lock.sections.manifests.collecting import Manifests, manifest_kind
from rlm_lock.sections.view import Imported, ProjectView, is_below, top_first

MOST_FILES = 40
MOST_IMPORTS = 40
_MOST_CRITICAL = 20


CRITICAL_PATTERNS = {
    "**/auth/**": re.compile(rb"(?:^|/)auth/"),
    "**/config/**": re.compile(rb"(?:^|/)config/"),
    "**/*migration*": re.compile(rb"migration[^/]*$"),
}
"""Patterns of files whose changes matter, with expressions that find them quickly among very many."""

_BY_NAME = re.compile(
    rb"(?P<build>Makefile|CMakeLists\.txt|meson\.build|BUILD(?:\.bazel)?|WORKSPACE|[jJ]ustfile|Rakefile|Dockerfile"
    rb"|(?:docker-)?compose\.ya?ml|tox\.ini|noxfile\.py|tsconfig\.json|(?:vite|webpack|rollup|next)\.config\.\w+)"
    rb"|(?P<ci>\.gitlab-ci\.yml|\.travis\.yml|Jenkinsfile|azure-pipelines\.yml)"
    rb"|(?P<entry>__main__\.py|manage\.py|(?:app|main|server|cli|wsgi|asgi)\.(?:py|go|rs|js|ts|mjs|c|cc|cpp|php|rb)"
    rb"|Main\.java|Application\.java|Program\.cs|config\.ru|index\.(?:js|ts|mjs|tsx|php)|lib\.rs|App\.[jt]sx)"
    rb"|(?P<config>settings\.\w+|config\.\w+|conf\.\w+|\.env\.example|appsettings\.json|application\.(?:ya?ml|properties)"
    rb"|alembic\.ini|default\.ya?ml)"
    rb"|(?P<api>(?:openapi|swagger)(?:\.\w+)?\.(?:ya?ml|json)|\w+\.proto|asyncapi\.ya?ml|(?:routes?|urls|api|router|endpoints)\.\w+)"
    rb"|(?P<schema>schema\.\w+|models?\.\w+|\w+\.graphql|\w+\.prisma|types\.(?:py|ts|go|rs)|\w+\.sql)"
    rb"|(?P<docs>README(?:\.\w+)?|ARCHITECTURE(?:\.\w+)?|architecture\.(?:md|rst)|DESIGN\.md|SECURITY\.md|CONTRIBUTING(?:\.\w+)?)"
    rb"|(?P<test>conftest\.py|test_helper\.rb|jest\.config\.\w+|setupTests\.\w+)"
)
"""The purpose of a file by its name; the names of the groups are roles."""

_CI_FOLDER = re.compile(rb"\.github/workflows/[^/]+\.ya?ml|\.circleci/config\.yml", re.DOTALL)
_TESTS = re.compile(
    rb"(?:^|/)(?:tests?|__tests__|specs?|testing|testdata)/|(?:^|/)test_[^/]*$|[._]test\.\w+$|\.spec\.\w+$"
)
_NOT_OURS = re.compile(rb"(?:^|/)(?:vendor|third_party|node_modules|fixtures?|examples?|samples?|bench(?:marks?)?)/")

_MOST_OF_A_ROLE: dict[Role, int] = {
    Role.BUILD: 8,
    Role.ENTRY: 8,
    Role.CI: 3,
    Role.DOCS: 4,
    Role.API: 4,
    Role.SCHEMA: 4,
    Role.CONFIG: 4,
    Role.TEST: 2,
}
"""How many files of each role are chosen by their names, in the order of the answer."""

_MOST_OF_A_PATTERN = 3
_SEPARATORS = {b".py": ".", b".pyi": ".", b".java": ".", b".cs": ".", b".rs": "::"}
"""The separator between the parts of a module in the language of these files; otherwise a slash."""


def role_of(path: bytes) -> Role | None:
    """Return the purpose of a file by its path, if that shows it."""
    if _CI_FOLDER.fullmatch(path):
        return Role.CI
    if manifest_kind(path) is not None:
        return Role.BUILD
    match = _BY_NAME.fullmatch(path.rpartition(b"/")[2])
    return Role(match.lastgroup) if match and match.lastgroup else None


def key_files_of(view: ProjectView, manifests: Manifests, below: bytes = b"") -> KeyFiles:
    """Return up to forty files: by what manifests name, by their own names, by the patterns, and by use."""
    entries = {entry.path: entry for entry in view.files() if is_below(entry.path, below)}
    critical = {pattern: [p for p in entries if find.search(p)] for pattern, find in CRITICAL_PATTERNS.items()}
    chosen: dict[bytes, Role] = {}
    for path, role in itertools.chain(
        _by_name(entries, manifests),
        _by_pattern(critical),
        ((path, _role_by_use(path)) for path in view.most_used(MOST_FILES, below) if path in entries),
    ):
        if len(chosen) < MOST_FILES:
            chosen.setdefault(path, role)
    return KeyFiles(
        files=tuple(_key_file(view, entries[path], role) for path, role in chosen.items()),
        critical_patterns=tuple(CRITICAL_PATTERNS),
        critical_files=tuple(
            CriticalFiles(pattern, len(paths), tuple(map(shown, top_first(paths)[:_MOST_CRITICAL])))
            for pattern, paths in critical.items()
            if paths
        ),
    )


def _by_name(paths: Iterable[bytes], manifests: Manifests) -> Iterator[tuple[bytes, Role]]:
    found: dict[Role, list[bytes]] = {role: [] for role in _MOST_OF_A_ROLE}
    found[Role.ENTRY] = list(_entries(paths, manifests.entries))
    read = {manifest.path for manifest in manifests.manifests}
    for path in top_first(paths):
        role = role_of(path)
        if role is Role.BUILD and manifest_kind(path) is not None and shown(path) not in read:
            continue  # a lock file with the name of a manifest
        if role in found and not _NOT_OURS.search(path) and (role is Role.TEST or not _TESTS.search(path)):
            found[role].append(path)
    for role, most in _MOST_OF_A_ROLE.items():
        for path in list(dict.fromkeys(found[role]))[:most]:
            yield path, role


def _entries(paths: Iterable[bytes], entries: Sequence[str]) -> Iterator[bytes]:
    """Yield the files in which packages begin: named as files, or as Python's ``module:function``."""
    ends: list[bytes] = []
    for entry in entries:
        module, colon, _ = entry.partition(":")
        names = (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py") if colon else (entry,)
        ends += [b"/" + name.encode("utf-8", "replace").removeprefix(b"./") for name in names]
    wanted = tuple(ends)
    yield from top_first(path for path in paths if wanted and (b"/" + path).endswith(wanted))


def _by_pattern(critical: dict[str, list[bytes]]) -> Iterator[tuple[bytes, Role]]:
    roles = dict(zip(CRITICAL_PATTERNS, (Role.CORE_LOGIC, Role.CONFIG, Role.SCHEMA), strict=True))
    for pattern, paths in critical.items():
        ours = (path for path in top_first(paths) if not _TESTS.search(path) and not _NOT_OURS.search(path))
        for path in itertools.islice(ours, _MOST_OF_A_PATTERN):
            yield path, role_of(path) or roles[pattern]


def _role_by_use(path: bytes) -> Role:
    return Role.TEST if _TESTS.search(path) else role_of(path) or Role.CORE_LOGIC


def _key_file(view: ProjectView, entry: FileEntry, role: Role) -> KeyFile:
    return KeyFile(
        path=shown(entry.path),
        role=role,
        last_modified=iso(view.last_modified(entry.path)),
        size_bytes=entry.size,
        imports=tuple(itertools.islice(_imports(entry.path, view.imports_of(entry.path)), MOST_IMPORTS)),
    )


def _imports(path: bytes, imports: Sequence[Imported]) -> Iterator[str]:
    """Yield each module once: as a file of the project without its suffix, otherwise as its language writes it."""
    separator = _SEPARATORS.get(posixpath.splitext(path)[1], "/")
    # An import of names from a module is also kept as imports of modules with these names.
    modules = {imported.module for imported in imports}
    seen: set[str] = set()
    for imported in imports:
        if imported.target is not None:
            name = shown(re.sub(rb"(/__init__)?\.\w+$", b"", imported.target))
        elif imported.module.rpartition("/")[0] in modules:
            continue
        else:
            is_path = imported.module.startswith(".")
            name = shown(imported.module if is_path else imported.module.replace("/", separator))
        if name not in seen:
            seen.add(name)
            yield name
