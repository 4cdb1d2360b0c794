# %%
import re, html
md = """# Title

Some *text* with `code` and **bold** <tags>.

- one
- two
  more

```py
x = 1 < 2
```

## Sub & more
1. first
2. second"""
def inline(s):
    s = html.escape(s, quote=False)
    for pat, tag in ((r"`(.+?)`", "code"), (r"\*\*(.+?)\*\*", "b"), (r"\*(.+?)\*", "i")):
        s = re.sub(pat, rf"<{tag}>\1</{tag}>", s)
    return s
def convert(md):
    out, lines, i = [], md.split("\n"), 0
    while i < len(lines):
        line = lines[i]
        if m := re.match(r"(#+) (.*)", line):
            out.append(f"<h{len(m[1])}>{inline(m[2])}</h{len(m[1])}>")
        elif line.startswith("```"):
            j = next(k for k in range(i + 1, len(lines)) if lines[k].startswith("```"))
            out.append("<pre>" + html.escape("\n".join(lines[i + 1 : j])) + "</pre>")
            i = j
        elif m := re.match(r"(?:-|(\d+)\.) ", line):
            tag = "ol" if m[1] else "ul"
            items = []
            while i < len(lines) and lines[i].strip():
                if n := re.match(r"(?:-|\d+\.) (.*)", lines[i]):
                    items.append(n[1])
                else:
                    items[-1] += " " + lines[i].strip()
                i += 1
            out.append(f"<{tag}>" + "".join(f"<li>{inline(x)}</li>" for x in items) + f"</{tag}>")
        elif line.strip():
            out.append(f"<p>{inline(line)}</p>")
        i += 1
    return "\n".join(out)
page = convert(md)
print(page)
# %%
import xml.etree.ElementTree as ET
root = ET.fromstring(f"<html>{page}</html>")
for el in root.iter():
    print(el.tag, repr((el.text or "").strip()))
toc = [(int(e.tag[1]), "".join(e.itertext())) for e in root if re.fullmatch(r"h\d", e.tag)]
toc
# %%
feed = ET.Element("feed", version="1")
for lvl, title in toc:
    e = ET.SubElement(feed, "entry", {"level": str(lvl)})
    e.text = title
ET.indent(feed)
print(ET.tostring(feed, encoding="unicode"))
print([e.get("level") for e in feed.findall("entry[@level='2']")], feed.find("nothing"))
try:
    ET.fromstring("<a><b></a>")
except ET.ParseError as e:
    print("parse error", e.position)
# %%
from urllib.parse import urlsplit, parse_qs, urlencode, urljoin, quote
u = urlsplit("https://user@example.com:8443/a/b.html?q=1&q=2&s=x%20y#frag")
print(u.hostname, u.port, parse_qs(u.query), u.fragment)
print(urljoin("https://example.com/a/b/", "../c?x=1"), urlencode({"k": "ä b", "n": [1, 2]}, doseq=True), quote("a/b c"))
import unicodedata
s = "Ångström naïve ﬁ"
print(unicodedata.normalize("NFKD", s).encode("ascii", "ignore").decode(), [unicodedata.name(c) for c in s[:2]])
