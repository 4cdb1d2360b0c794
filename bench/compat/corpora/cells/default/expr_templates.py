# %%
import re
from string import Template
t = Template("Dear $name, you owe ${amount} $$ since $day")
print(t.substitute(name="Ada", amount="12.50", day="Monday"))
print(t.safe_substitute(name="Bob"))
try:
    t.substitute(name="Bob")
except KeyError as e:
    print("missing", e)
# %%
class Engine:
    """mini mustache: {{x}}, {{#list}}..{{/list}}, {{^cond}}..{{/cond}}, {{x|filter}}"""
    tag = re.compile(r"\{\{([#^/]?)\s*([\w.]+)\s*(?:\|\s*(\w+))?\s*\}\}")
    filters = {"upper": str.upper, "title": str.title, "len": len}

    def parse(self, src):
        stack, pos = [("root", None, [])], 0
        for m in self.tag.finditer(src):
            stack[-1][2].append(src[pos : m.start()])
            pos = m.end()
            sigil, name, filt = m.groups()
            if sigil in ("#", "^") and sigil:
                stack.append((sigil, name, []))
            elif sigil == "/":
                node = stack.pop()
                if node[1] != name:
                    raise SyntaxError(f"unbalanced: {node[1]} closed by {name}")
                stack[-1][2].append(node)
            else:
                stack[-1][2].append(("var", name, filt))
        stack[-1][2].append(src[pos:])
        if len(stack) != 1:
            raise SyntaxError(f"unclosed {stack[-1][1]}")
        return stack[0][2]

    def lookup(self, ctx, name):
        for part in name.split("."):
            ctx = ctx.get(part) if isinstance(ctx, dict) else ctx if part == "it" else getattr(ctx, part, None)
        return ctx

    def render(self, nodes, ctx):
        out = []
        for n in nodes:
            match n:
                case str():
                    out.append(n)
                case ("var", name, filt):
                    v = self.lookup(ctx, name)
                    out.append(str(self.filters[filt](v) if filt else v))
                case ("#", name, body):
                    v = self.lookup(ctx, name)
                    for item in v if isinstance(v, list) else [ctx] if v else []:
                        out.append(self.render(body, item if isinstance(item, dict) else {"it": item}))
                case ("^", name, body):
                    if not self.lookup(ctx, name):
                        out.append(self.render(body, ctx))
        return "".join(out)
e = Engine()
src = "{{title|upper}}:{{#people}}\n - {{name}} ({{#langs}}{{it}},{{/langs}}{{^langs}}none{{/langs}}){{/people}}\nn={{people|len}}"
print(e.render(e.parse(src), {"title": "staff", "people": [{"name": "Jo", "langs": ["py", "c"]}, {"name": "Al", "langs": []}]}))
# %%
for bad in ("{{#a}}x", "{{#a}}{{/b}}"):
    try:
        e.parse(bad)
    except SyntaxError as exc:
        print(exc)
e.render(e.parse("{{x|nope}}"), {"x": "1"})
# %%
camel = lambda s: re.sub(r"_([a-z])", lambda m: m[1].upper(), s)
snake = lambda s: re.sub(r"(?<!^)(?=[A-Z])", "_", s).lower()
print(camel("my_long_name"), snake("MyLongName"), snake(camel("a_b_c")) == "a_b_c")
print(re.sub(r"(?i)\b(\w)(\w*)", lambda m: m[2] + m[1] + "ay", "hello wide world"))
print(re.split(r"\s*[,;]\s*|\s+and\s+", "a, b;c and d ,e"), re.findall(r"(\d+)([a-z])", "12a 3b 44"))
re.fullmatch(r"(?P<y>\d{4})-(?P<m>\d\d)", "2024-09").groupdict()
