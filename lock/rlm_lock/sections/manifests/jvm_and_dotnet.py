"""Manifests that are XML or programs, read by their words: pom.xml, Gradle, C# projects. No XML is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlm_lock.sections.manifests.documents import table, text, toml_table
from rlm_lock.sections.manifests.lines import between, lines_of, without
from rlm_lock.sections.manifests.model import RUNTIME, Declaration, Declared

_CONFIGURATION = (
    r"\b(?P<group>(?:[a-z]\w{0,60}?)?(?:[iI]mplementation|[cC]lasspath|[oO]nly|[pP]rocessor)|api|kapt|ksp|compile)"
)
_GRADLE = re.compile(
    rf"""{_CONFIGURATION}[\s(]+(?:(?:enforcedPlatform|platform)\s*\(\s*)?(?:"""
    r"""project\s*\(\s*(?:path\s*[:=]\s*)?["'](?P<project>[^"']{1,200})["']"""
    r"""|["'](?P<spec>[^"':]{1,200}:[^"':]{1,200})(?::(?P<version>[^"']{1,100}))?["']"""
    r"""|(?:group\s*[:=]\s*)["'](?P<of>[^"']{1,200})["']\s*,\s*name\s*[:=]\s*["'](?P<name>[^"']{1,200})["'])"""
)
_ATTRIBUTE = re.compile(r"""\b(Include|Version)\s*=\s*["']([^"'<>]{0,300})["']""")


def _tag(block: str, name: str) -> str:
    return next(between(block, f"<{name}>", f"</{name}>"), "").strip()


def read_pom(source: str) -> Declared:
    """Read a Maven module: its own dependencies, not those it manages for others or for plugins."""
    source = without(source, "<!--", "-->")
    above = _tag(source, "parent")
    for part in ("parent", "build", "dependencyManagement", "reporting", "exclusions"):
        source = without(source, f"<{part}>", f"</{part}>")
    own = without(source, "<dependencies>", "</dependencies>")
    group = _tag(own, "groupId") or _tag(above, "groupId")
    declared = Declared(f"{group}:{_tag(own, 'artifactId')}".strip(":"), _tag(own, "version") or _tag(above, "version"))
    for block in between(source, "<dependency>", "</dependency>"):
        name = f"{_tag(block, 'groupId')}:{_tag(block, 'artifactId')}".strip(":")
        if name:
            name = name.replace("${project.groupId}", group)
            declared.dependencies.append(Declaration(name, _tag(block, "version"), _tag(block, "scope") or RUNTIME))
    declared.members = [module.strip() for module in between(source, "<module>", "</module>")]
    return declared


def read_gradle(source: str) -> Declared:
    """Read the dependencies of a build script that are written as literals."""
    found = Declared()
    for line in lines_of(without(source, "/*", "*/"), "// "):
        for match in _GRADLE.finditer(line):
            group = RUNTIME if match["group"] in ("implementation", "api", "compile") else match["group"]
            if match["project"]:
                path = match["project"].strip(":").replace(":", "/")
                found.dependencies.append(Declaration(match["project"], "project", group, f"//{path}"))
            else:
                name = match["spec"] or f"{match['of']}:{match['name']}"
                found.dependencies.append(Declaration(name, match["version"] or "", group))
    return found


def read_gradle_settings(source: str) -> Declared:
    """Read which folders a build includes."""
    names = (
        name
        for line in lines_of(source, "// ")
        if line.startswith(("include ", "include(", '"', "'"))
        for name in re.findall(r"""["']:?([\w.:/-]{1,200})["']""", line)
    )
    return Declared(members=[name.replace(":", "/") for name in names])


def read_version_catalog(source: str) -> Declared:
    """Read the libraries of a Gradle version catalog."""
    return Declared(dependencies=list(_libraries(source)))


def _libraries(source: str) -> Iterator[Declaration]:
    for wanted in table(toml_table(source), "libraries").values():
        group, _, rest = text(wanted).partition(":")
        name = text(wanted, "module") or f"{text(wanted, 'group')}:{text(wanted, 'name')}".strip(":")
        if rest:
            artifact, _, version = rest.partition(":")
            yield Declaration(f"{group}:{artifact}", version)
        elif name:
            yield Declaration(name, text(wanted, "version") or text(wanted, "version", "ref"))


def read_csproj(source: str) -> Declared:
    """Read the packages and projects that a .NET project refers to."""
    source = without(source, "<!--", "-->")
    found = Declared(_tag(source, "PackageId") or _tag(source, "AssemblyName"), _tag(source, "Version"))
    for block in between(source, "<PackageReference", ">"):
        attributes = dict(_ATTRIBUTE.findall(block[:1000]))
        if name := attributes.get("Include"):
            found.dependencies.append(Declaration(name, attributes.get("Version", "")))
    for block in between(source, "<ProjectReference", ">"):
        if place := dict(_ATTRIBUTE.findall(block[:1000])).get("Include", "").replace("\\", "/"):
            name = place.rpartition("/")[2].rpartition(".")[0]
            found.dependencies.append(Declaration(name, "project", RUNTIME, place))
    return found
