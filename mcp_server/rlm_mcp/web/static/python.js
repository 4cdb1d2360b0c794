// Colours for Python. Unknown parts stay plain; the result is only text.

import { h } from "./dom.js";

const KEYWORDS = new Set(
  "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case".split(" "),
);
const TOKENS = new RegExp(
  [
    /(?<comment>#.*)/,
    /(?<string>(?<![\p{L}\p{N}_])[rbuft]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?))/,
    /(?<number>(?<![\p{L}\p{N}_.])\d(?:[\p{L}\p{N}_.]|(?<=[eE])[+-])*)/,
    /(?<word>[\p{L}_][\p{L}\p{N}_]*)/,
  ].map((part) => part.source).join("|"),
  "giu",
);

/** Yield the parts of code with their kinds; the kind of plain text is empty. */
function* tokens(code) {
  let end = 0;
  let before = "";
  for (const match of code.matchAll(TOKENS)) {
    if (match.index > end) yield ["", code.slice(end, match.index)];
    const { comment, string, number, word } = match.groups;
    if (comment) yield ["comment", comment];
    else if (string) yield ["string", string];
    else if (number) yield ["number", number];
    else if (KEYWORDS.has(word)) yield ["keyword", word];
    else yield [before === "def" || before === "class" ? "defined" : "", word];
    before = word ?? "";
    end = match.index + match[0].length;
  }
  if (end < code.length) yield ["", code.slice(end)];
}

const coloured = (kind, text) => (kind ? h("span", { class: `py-${kind}` }, text) : text);

/** Code in one line, with colours. */
export const inline = (code) => [...tokens(code)].map(([kind, text]) => coloured(kind, text));

/** Code as lines, which the style sheet numbers. */
export function lines(code) {
  const made = [[]];
  for (const [kind, text] of tokens(code)) {
    const parts = text.split("\n");
    for (const [at, part] of parts.entries()) {
      const more = at < parts.length - 1;
      if (part) made.at(-1).push(coloured(kind, part));
      if (more) made.at(-1).push("\n");
      if (more) made.push([]);
    }
  }
  if (made.at(-1).length === 0) made.pop();
  return made.map((line) => h("span", { class: "line" }, ...line));
}
