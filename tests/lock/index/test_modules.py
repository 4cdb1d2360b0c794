"""What an import means is a file of the project, or nothing: packages of elsewhere must not become neighbours."""

import pytest
from indexed_project import Project

FILES = (
    *("src/pkg/__init__.py", "src/pkg/core.py", "src/pkg/deep/core.py", "src/pkg/deep/json.py", "tests/test_core.py"),
    "queue.py",
    *(
        "packages/server/src/index.ts",
        "packages/server/src/adapters/http.ts",
        "web/a.ts",
        "web/b.tsx",
        "web/ui/index.js",
    ),
    *("bind/bind.go", "bind/more.go", "bind/bind_test.go", "main.go"),
    *(
        "compiler/one_span/src/lib.rs",
        "compiler/one_span/src/pos.rs",
        "crates/two/src/util.rs",
        "crates/two/src/main.rs",
    ),
    *("java/com/acme/Thing.java", "java/com/acme/Other.java", "inc/sys/io.h", "drv/io.h", "drv/io.c"),
    *("lib/tool.rb", "lib/tool/part.rb", "app/Model/User.php"),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A tree with files of many languages, without content."""
    return Project(tmp_path_factory.mktemp("modules"), dict.fromkeys(FILES, ""))


@pytest.mark.parametrize(
    ("importer", "name", "expected"),
    [
        ("tests/test_core.py", "pkg/core", "src/pkg/core.py"),
        ("tests/test_core.py", "pkg/core/Thing", "src/pkg/core.py"),
        ("tests/test_core.py", "pkg", "src/pkg/__init__.py"),
        ("src/pkg/deep/json.py", "json", ""),
        ("src/pkg/deep/json.py", "os/path", ""),
        ("src/pkg/deep/json.py", "queue", "queue.py"),
        ("src/pkg/deep/json.py", "./core", "src/pkg/deep/core.py"),
        ("src/pkg/deep/json.py", "../core", "src/pkg/core.py"),
        ("src/pkg/core.py", ".", "src/pkg/__init__.py"),
        ("src/pkg/core.py", "./deep/core/NAME", "src/pkg/deep/core.py"),
        ("src/pkg/core.py", "../../../../etc/passwd", ""),
        ("web/a.ts", "./b", "web/b.tsx"),
        ("web/a.ts", "./b.js", "web/b.tsx"),
        ("web/a.ts", "./ui", "web/ui/index.js"),
        ("web/a.ts", "@acme/server", "packages/server/src/index.ts"),
        ("web/a.ts", "@acme/server/adapters/http", "packages/server/src/adapters/http.ts"),
        ("web/a.ts", "react", ""),
        ("main.go", "example.org/x/bind", "bind/bind.go bind/more.go"),
        ("main.go", "fmt", ""),
        ("crates/two/src/main.rs", "crate/util/helper", "crates/two/src/util.rs"),
        ("crates/two/src/main.rs", "one_span/pos", "compiler/one_span/src/pos.rs"),
        ("crates/two/src/main.rs", "std/io", ""),
        ("crates/two/src/main.rs", "./util", "crates/two/src/util.rs"),
        ("java/com/acme/Other.java", "com/acme/Thing/method", "java/com/acme/Thing.java"),
        ("java/com/acme/Other.java", "java/util/List", ""),
        ("drv/io.c", "io.h", "drv/io.h"),
        ("drv/io.c", "sys/io.h", "inc/sys/io.h"),
        ("drv/io.c", "stdio.h", ""),
        ("lib/tool.rb", "tool/part", "lib/tool/part.rb"),
        ("lib/tool.rb", "App/Model/User", ""),
        ("lib/tool.rb", "app/Model/User", "app/Model/User.php"),
    ],
)
def test_an_import_means_the_nearest_file_of_its_name(
    project: Project, importer: str, name: str, expected: str
) -> None:
    """Neighbours come from imports; each language writes and shortens them in its own way."""
    (found,) = project.index.resolve(project.number(importer), [name])
    assert " ".join(sorted(project.index.text_of(n) for n in found)) == expected
