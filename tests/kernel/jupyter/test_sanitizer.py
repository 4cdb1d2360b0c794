"""What a front end is shown of hostile output: tables and pictures, and nothing that acts."""

import json
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_ipc.jupyter_wire import Signer
from rlm_kernel.jupyter.bridge import presentable
from rlm_kernel.jupyter.sanitizer import ATTRIBUTES, LONGEST_MARKDOWN, STYLES, TAGS, sanitized, sanitized_html

ROW = '<tr style="text-align: right;"><th>a &amp; b</th><td colspan="2">1</td></tr>'
TABLE = f'<table border="1" class="dataframe"><tbody>{ROW}</tbody></table>'


def message(kind: str, content: object) -> list[bytes]:
    """A message as the kernel sends it."""
    return Signer(b"").parts(kind, b"{}", content)  # type: ignore[arg-type]  # a hostile kernel sends what it likes


def is_plain_style(value: str) -> bool:
    """Whether a style only colours, draws lines and aligns."""
    named = [declaration.partition(": ") for declaration in value.split("; ")]
    return all(name in STYLES and "url" not in said and "expression" not in said for name, _, said in named)


def test_a_table_stays_a_table() -> None:
    """K-29: what pandas writes is kept, its style sheet aside."""
    shown = sanitized_html(f"<div><style scoped>.x {{}}</style>{TABLE}<p>2 rows</p></div>")
    assert shown == f"<div>{TABLE.replace('right;', 'right')}<p>2 rows</p></div>"


def test_a_styled_table_keeps_its_colours() -> None:
    """What pandas writes for a Styler: rules for the ids of cells become styles of these cells."""
    sheet = (
        "#T_a_row0_col0, #T_a_row1_col0 {\n  background-color: yellow;\n  color: #000000;\n}\n#T_a th { color: red }"
    )
    bar = "#T_a_row1_col0 { width: 10em; background: linear-gradient(90deg, #d65f5f 40.0%, transparent 40.0%); }"
    cells = "".join(f'<tr><td id="T_a_row{row}_col0" class="data row{row} col0" >{row}</td></tr>' for row in range(3))
    shown = sanitized_html(f'<style type="text/css">\n{sheet}\n{bar}\n</style>\n<table id="T_a">{cells}</table>')
    plain = "background-color: yellow; color: #000000"
    gradient = "background: linear-gradient(90deg, #d65f5f 40.0%, transparent 40.0%)"
    rows = f'<tr><td style="{plain}">0</td></tr><tr><td style="{plain}; {gradient}">1</td></tr><tr><td>2</td></tr>'
    assert shown.strip() == f"<table><tbody>{rows}</tbody></table>"


@pytest.mark.parametrize(
    "style",
    [
        "background: url(http://example.org/spy.png)",
        "background-color: url (x)",
        "background: image-set('x.png' 1x)",
        "color: var(--x)",
        "color: expression(alert(1))",
        "background: \\75rl(x)",
        "position: fixed",
        "width: 100vw",
        'color: red" onclick="alert(1)',
        "color: re/**/d",
        "border-image: url(x)",
        "content: 'x'",
    ],
)
def test_styles_load_and_cover_nothing(style: str) -> None:
    """Neither in an attribute nor by a sheet."""
    by_sheet = sanitized_html(f'<style>#x {{{style}}}</style><p id="x">y</p>')
    by_attribute = sanitized_html(f"<p style='{style}'>y</p>")
    for shown in (by_sheet, by_attribute):
        assert shown.replace(' style="color: red"', "") == "<p>y</p>"


@pytest.mark.parametrize(
    "hostile",
    [
        "<style>" * 80_000,
        "<style>" + "#a{" * 100_000 + "</style>",
        f"<style>{','.join(['#a'] * 100_000)}{{color:red}}</style>" + '<p id="a">' * 100,
        f"<style>{'#a{color:red}' * 30_000}</style>" + '<p id="a">' * 100,
        "<style>#a{" + "color:red;" * 40_000 + "}</style>" + '<p id="a"></p>' * 5_000,
        "".join(f"<style>#a{n}{{color:red}}</style>" for n in range(9_000)),
    ],
)
def test_style_sheets_cost_little(hostile: str) -> None:
    """Each is read once, however often it begins, and what it wants is bounded."""
    assert_sanitized(sanitized_html(hostile[: 512 << 10]))


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '<img src="https://example.org/spy.png">',
        "<svg onload=alert(1)><script>alert(1)</script></svg>",
        "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
        '<a href="javascript:alert(1)">x</a>',
        '<b style="position:fixed;inset:0;text-align:left">x</b>',
        '<div data-commandlinker-command="terminal:create-new" class="jp-Button">x</div>',
        "<details open ontoggle=alert(1)>x</details>",
        "<noscript><p title='</noscript><script>alert(1)</script>'></noscript>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
        "<!--><script>alert(1)</script>-->",
        "<form action=https://example.org><input name=x><button>go</button></form>",
        "<table><td align='\"onclick=alert(1)'>x</td></table>",
        "<<script>script>alert(1)<</script>/script>",
        "<sc<script></script>ript>alert(1)</script>",
        "<object data='data:text/html,<script>alert(1)</script>'></object>",
        "<link rel=stylesheet href=//example.org><meta http-equiv=refresh content=0;url=//example.org><base href=//x>",
    ],
)
def test_nothing_that_acts_is_left(hostile: str) -> None:
    """Only tags and attributes of the short list come out, however the HTML was broken."""
    assert_sanitized(sanitized_html(hostile))


@given(st.text(alphabet="<>/='\"! -abcdefghilmnoprstuvxy&;#x", max_size=80))
def test_no_text_becomes_anything_else(text: str) -> None:
    """Whatever comes in, what comes out is sanitized, and is not changed by another pass."""
    once = sanitized_html(text)
    assert_sanitized(once)
    assert sanitized_html(once) == once


@given(st.text(alphabet="<>/='\"! -abch&;#x[]()*_`|\\~:\n\t", max_size=120))
def test_no_markdown_becomes_anything_else(text: str) -> None:
    """Whatever Markdown says, its HTML is sanitized."""
    assert_sanitized(sanitized({"text/markdown": text}).get("text/html", ""))


def assert_sanitized(text: str) -> None:
    class Look(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in TAGS
            for name, value in attrs:
                assert name in ATTRIBUTES or (name, value) == ("class", "dataframe") or name in {"style", "src", "alt"}
                assert name != "style" or is_plain_style(value or "")
                assert name != "src" or (value or "").startswith("data:image/")

        def handle_comment(self, data: str) -> None:
            raise AssertionError(data)

        handle_decl = handle_pi = unknown_decl = handle_comment

    look = Look()
    look.feed(text)
    look.close()


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ("<li>" * 20_000, "<li>" * 20_001),
        ("</p>" * 20_000, "</p>" * 20_001),
        ("<b class=x>" * 50, "<b class=x>" * 51),
        ("<STRONG\nclass=x>" * 50, "<STRONG\nclass=x>" * 51),
        ("<i/x>" * 50, "<i/x>" * 51),
        ("x" * (512 << 10), "x" * ((512 << 10) + 1)),
    ],
    ids=["tags", "ends", "formats", "letters", "slashes", "characters"],
)
def test_html_that_would_take_long_to_clean_is_not_shown(few: str, many: str) -> None:
    """A session cannot keep its front end busy: beyond the bounds the plain text is shown alone."""
    assert set(sanitized({"text/html": few, "text/plain": "x"})) == {"text/html", "text/plain"}
    assert set(sanitized({"text/html": many, "text/plain": "x"})) == {"text/plain"}


def test_open_formats_do_not_multiply() -> None:
    """The costliest text within the bounds, 92 formats that are made again in 9,000 paragraphs, is cleaned soon."""
    plain = "".join(f"<{tag}>" * 3 for tag in "b big code em font i s small strike strong tt u".split())
    formats = "<p>" + plain + "".join(f"<b class={number}>" for number in range(50)) + "</p>"
    began = time.process_time()
    shown = sanitized_html(formats + "<p>x</p>" * 9_000)
    assert shown.count("<p>") == 9_001
    assert time.process_time() - began < 10


def test_only_forms_that_cannot_act_are_passed_on() -> None:
    """Scripts, widgets, SVG and LaTeX go; text, pictures and data stay."""
    kinds = ["text/plain", "image/png", "application/javascript", "image/svg+xml", "text/latex", "text/x-anything"]
    assert set(sanitized(dict.fromkeys(kinds, "x"))) == {"text/plain", "image/png"}
    assert sanitized({"text/plain": 5, "text/html": {"a": 1}, "application/json": {"a": 1}}) == {
        "application/json": {"a": 1}
    }


def test_a_message_is_presentable_or_not_passed_on() -> None:
    """Displays, inspection and replies are cleaned; comms and what is unknown or malformed are left out."""
    html = {"text/html": "<b onclick=x>y</b>", "text/plain": "y"}
    for kind in ("display_data", "execute_result", "update_display_data", "inspect_reply"):
        shown = presentable(message(kind, {"data": html, "metadata": {"isolated": True, "image/png": {"width": 5}}}))
        assert shown is not None
        assert json.loads(shown[5]) == {
            "data": {"text/plain": "y", "text/html": "<b>y</b>"},
            "metadata": {"image/png": {"width": 5}},
        }
    payload = [{"source": "page", "data": html}, {"source": "ask_exit", "keepkernel": True}]
    reply = {"status": "ok", "payload": payload, "user_expressions": {"a": {"status": "ok", "data": html}}}
    cleaned = presentable(message("execute_reply", reply))
    assert cleaned is not None
    assert b"onclick" not in cleaned[5]
    assert json.loads(cleaned[5])["payload"] == [{"source": "ask_exit", "keepkernel": False}]
    for kind, content in (
        ("comm_open", {}),
        ("comm_msg", {}),
        ("display_data", []),
        ("display_data", {"data": 1}),
        ("x", {}),
    ):
        assert presentable(message(kind, content)) is None
    assert presentable([b"<IDS|MSG>", b"", b"{", b"{}", b"{}", b"{}"]) is None


def test_markdown_is_shown_as_html() -> None:
    """Headings, emphasis, code and tables; a value that has HTML of its own keeps that."""
    source = "# Result\n\n**2** of `5`\n\n| a | b |\n|---|---|\n| 1 | <b>2</b> |\n"
    shown = sanitized({"text/plain": source, "text/markdown": source})
    assert shown.keys() == {"text/plain", "text/html"}
    assert shown["text/html"].startswith("<h1>Result</h1>\n<p><strong>2</strong> of <code>5</code></p>\n<table>")
    assert "<td>&lt;b&gt;2&lt;/b&gt;</td>" in shown["text/html"]
    assert sanitized({"text/markdown": "# x", "text/html": "<b>y</b>"}) == {"text/html": "<b>y</b>"}


@pytest.mark.parametrize(
    "source",
    [
        "[click](javascript:alert(1)) <javascript:alert(1)>",
        "![spy](http://example.org/spy.png)",
        "<img src=x onerror=alert(1)><script>alert(1)</script>",
        "[a]: http://example.org\n\n[a] ![a]",
        "<http://example.org>",
        "| <svg onload=alert(1)> |\n|---|\n| ![x](data:text/html;base64,PHNjcmlwdD4=) |",
        "```<script>\nx\n```",
    ],
)
def test_nothing_in_markdown_acts_or_loads(source: str) -> None:
    """Its HTML is text, and its links and pictures go through the same list as those of HTML."""
    html = sanitized({"text/markdown": source})["text/html"]
    assert_sanitized(html)
    assert sanitized_html(html) == html


def test_markdown_that_would_take_long_is_shown_as_text() -> None:
    """Its time is bounded by its length; what makes too much HTML has none."""
    wide = f"|{'a|' * 500}\n|{'-|' * 500}\n" + "|\n" * 10_000
    for source in ("a" * (LONGEST_MARKDOWN + 1), wide):
        assert sanitized({"text/plain": "p", "text/markdown": source}) == {"text/plain": "p"}
    assert sanitized({"text/markdown": {"x": 1}}) == {}
