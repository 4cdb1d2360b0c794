"""Each language's definitions, with kinds and lines, and its imports in one form for all languages."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from rlm_lock.extraction.grammars import LANGUAGES, tools_of
from rlm_lock.extraction.languages import extraction_key, grammar_of
from rlm_lock.extraction.parse import extract
from rlm_lock.extraction.queries import QUERIES


@dataclass(frozen=True)
class Case:
    """A file, and what is found in it: each definition as `line kind name`."""

    path: str
    text: str
    definitions: str
    imports: str = ""


CASES = [
    Case(
        "a/b.py",
        "import os.path as p, re\nfrom ..x import (y as z,  # why\n  w)\nfrom . import q\nfrom a.b import c\n"
        "class A:\n  def f(self): pass\n  @property\n  def g(self): pass\nX = 1\nasync def h(): pass\ntype T = int\n",
        "6 class A, 7 method f, 9 method g, 10 constant X, 11 function h, 12 type T",
        "os/path re ../x ../x/y ../x/w . ./q a/b a/b/c",
    ),
    Case(
        "x.js",
        "const q = require('./q');\nimport a from \"../a.mjs\";\nclass K { m() {} }\nfunction* gen() {}\n"
        "app.use = function use() {};\nvar late = () => import('./late');\n",
        "1 constant q, 3 class K, 3 method m, 4 function gen, 5 function use, 6 constant late",
        "./q ../a.mjs ./late",
    ),
    Case(
        "x.ts",
        'import {a} from "./b.js";\nexport * from "@scope/c";\nexport const k = 1;\nexport interface I {}\n'
        "type T = I;\nenum E {}\nnamespace N {}\n"
        "abstract class A { abstract m(): void }\ndeclare function f(): void;\n",
        "3 constant k, 4 interface I, 5 type T, 6 enum E, 7 module N, 8 class A, 8 method m, 9 function f",
        "./b.js @scope/c",
    ),
    Case(
        "x.tsx",
        "import React from 'react';\nexport function View() { return <p>hello</p>; }\nexport const Row = () => <i/>;\n",
        "2 function View, 3 constant Row",
        "react",
    ),
    Case(
        "x.go",
        'package a\nimport (\n "fmt"\n x "github.com/a/b"\n)\nvar (\n V = 1\n)\nconst C = 2\n'
        "func (t *T) M() {}\nfunc F() {}\ntype T struct{}\ntype U = T\n",
        "7 constant V, 9 constant C, 10 method M, 11 function F, 12 type T, 13 type U",
        "fmt github.com/a/b",
    ),
    Case(
        "src/x.rs",
        "mod foo;\nuse crate::a::{b, c::{d, e as f}};\nuse super::super::y;\nuse super::z;\nuse self::w::*;\n"
        "pub(crate) use std::io::*;\npub struct S;\nimpl S { fn m(&self) {} }\nmacro_rules! mm { () => {} }\n"
        "trait R { fn n(); }\nmod tests { fn t() {} }\n",
        "7 struct S, 8 method m, 9 macro mm, 10 trait R, 10 method n, 11 module tests, 11 function t",
        "./x/foo crate/a/b crate/a/c/d crate/a/c/e ../y ./z ./x/w std/io",
    ),
    Case("src/mod.rs", "mod foo;\nuse super::z;\nuse self::foo::F;\n", "", "./foo ../z ./foo/F"),
    Case(
        "x.java",
        "import static a.b.C.m;\nimport d.e.*;\nclass K { void m() {} }\ninterface I {}\nenum E { A }\nrecord R() {}\n"
        "@interface N {}\n",
        "3 class K, 3 method m, 4 interface I, 5 enum E, 6 class R, 7 interface N",
        "a/b/C/m d/e",
    ),
    Case(
        "x.c",
        '#include "z.h"\n#include <sys/a.h>\nstatic int **f(void) { return 0; }\ntypedef struct s { int a; } s_t;\n'
        "#define MAX(a, b) a\n#define SIZE 4\n#define GUARD\ntypedef int (*cb)(void);\nenum e { A };\nint main() {}\n",
        "3 function f, 4 struct s, 4 type s_t, 5 macro MAX, 6 macro SIZE, 8 type cb, 9 enum e, 10 function main",
        "z.h sys/a.h",
    ),
    Case(
        "x.hpp",
        "#include <a/b.h>\nnamespace n {\ntemplate <class T> class A { void m(); int k() { return 1; } };\n"
        "using U = A<int>;\n}\nvoid n::A::o() {}\nstruct S : A<int> { S& operator=(S); };\n",
        "2 module n, 3 class A, 3 method m, 3 method k, 4 type U, 6 method o, 7 struct S",
        "a/b.h",
    ),
    Case("x.h", "struct s { int a; };\nint f(void);\n", "1 struct s"),
    Case("y.h", "class C { void m(); };\n", "1 class C, 1 method m"),
    Case(
        "x.cs",
        "global using static A.B.C;\nusing X = D.E<int>;\nnamespace N { class K { int P {get;} void M() {} } }\n"
        "interface I {}\nstruct S {}\nenum E {}\nrecord R();\ndelegate void D();\n",
        "3 class K, 3 property P, 3 method M, 4 interface I, 5 struct S, 6 enum E, 7 class R, 8 type D",
        "A/B/C D/E",
    ),
    Case(
        "x.rb",
        'require "a/b"\nrequire_relative "c"\nautoload :X, "m/x"\nmodule M\n class A::B\n  LIMIT = 1\n  def q?; end\n'
        "  def self.r; end\n end\nend\nputs 'no/import'\n",
        "4 module M, 5 class B, 6 constant LIMIT, 7 method q?, 8 method r",
        "a/b ./c m/x",
    ),
    Case("Rakefile", "require 'rake'\ndef helper; end\n", "2 method helper", "rake"),
    Case(
        "x.php",
        "<?php\nuse A\\B\\{C, D as E};\nuse function F\\G;\nrequire_once __DIR__ . '/x.php';\ninclude 'lib/y.php';\n"
        "class K { function m() {} }\ninterface I {}\ntrait T {}\nconst Q = 1;\nfunction f() {}\n",
        "6 class K, 6 method m, 7 interface I, 8 trait T, 9 constant Q, 10 function f",
        "A/B/C A/B/D F/G ./x.php lib/y.php",
    ),
    Case(
        "bin/tool",
        '#!/usr/bin/env bash\nsource "$(dirname "$0")/lib.sh"\n. ./b.sh\nfoo() { :; }\nfunction bar { :; }\n',
        "4 function foo, 5 function bar",
        "lib.sh ./b.sh",
    ),
    Case("bin/other", "#!/usr/bin/python3\nimport a.b\ndef f(): pass\n", "3 function f", "a/b"),
    Case("README", "def f(): pass\n", ""),
    Case("notes.txt", "class A: pass\n", ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
def test_definitions_and_imports_of_a_language_are_found(case: Case) -> None:
    """An agent asks by name and by use; both begin with what each file defines and imports (L-1)."""
    found = extract(case.path, case.text.encode())
    assert ", ".join(f"{d.line} {d.kind} {d.name}" for d in found.definitions) == case.definitions
    assert " ".join(found.imports) == case.imports


@pytest.mark.parametrize("grammar", QUERIES)
def test_every_grammar_is_installed_and_takes_its_query(grammar: str) -> None:
    """A wheel that renames a node would fail in the helper of a user; it has to fail here."""
    tools_of(grammar)
    assert set(LANGUAGES) == set(QUERIES)
    assert any(grammar_of(case.path, case.text.encode()) == grammar for case in CASES)


def test_a_file_with_errors_still_gives_what_its_sound_parts_define() -> None:
    """People scan while they write."""
    found = extract("x.py", b"def good(): pass\ndef bad(:\n  x = (\nclass Also: pass\n")
    assert "good" in {d.name for d in found.definitions}


def test_the_key_of_a_file_names_its_grammars_and_nothing_of_other_languages() -> None:
    """An extract is kept under its content and this key: a new grammar of Go must not parse all Python again."""
    assert "python" in extraction_key("a/x.py")
    assert extraction_key("a/x.py") == extraction_key("b/y.pyi")
    assert extraction_key("x.py") != extraction_key("x.go")
    assert "cpp" in extraction_key("x.h")
    assert "c " in extraction_key("x.h")
    assert extraction_key("src/mod.rs") != extraction_key("src/x.rs")
    assert "bash" in extraction_key("bin/tool")


def test_everything_but_parsing_is_importable_without_a_parser() -> None:
    """The daemon and the scanner never load native code that reads hostile text (L-11)."""
    program = (
        "import sys; from rlm_lock.extraction import languages, packing, parse;"
        "languages.extraction_key('x.h'); print([m for m in sys.modules if m.startswith('tree_sitter')])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"
