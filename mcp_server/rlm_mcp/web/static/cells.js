// A cell that has run: its code, output, error, Markdown and pictures.

import { h, theirs } from "./dom.js";
import { picture } from "./feed.js";
import { lines } from "./python.js";

const TRACEBACK = /^Traceback \(most recent call last\)/m;
const ERROR_LINE = /^([A-Za-z_][\w.]*): ?/gm;
const ERROR_NAME = /(Error|Exception|Refused|Interrupt|Interrupted|Exit|Iteration|Warning)$/;

/** Separate a cell's output from its error, which is the end of it. */
function parted({ output, status }) {
  if (status === "ok") return [output, ""];
  if (status !== "error") return ["", output];
  const traceback = output.search(TRACEBACK);
  if (traceback >= 0) return [output.slice(0, traceback), output.slice(traceback)];
  const found = [...output.matchAll(ERROR_LINE)];
  const start = found.findLast((match) => ERROR_NAME.test(match[1])) ?? found.at(-1);
  return start === undefined ? ["", output] : [output.slice(0, start.index), output.slice(start.index)];
}

/** The number of a cell, as in tracebacks and front ends. */
export const counted = (cell) => (cell.count === null ? "" : `[${cell.count}]`);

/** Code as a block. */
export const codeBlock = (code) => h("pre", { class: "code their", tabindex: 0, "aria-label": "Code" }, ...lines(code));

/** Show code in an existing block; if it has not changed, a selection in it is kept. */
export function showCode(node, code) {
  if (node.textContent !== code) node.replaceChildren(...lines(code));
}

const block = (text, name, label) => text && theirs(text, "pre", { class: name, tabindex: 0, "aria-label": label });

/** Return a cell's output; `address` is that of its pictures. */
export function outcome(cell, address) {
  const [written, error] = parted(cell);
  const pictures = Array.from({ length: cell.pictures }, (_, at) => makePicture(`${address}/pictures/${at}`, at + 1));
  const texts = cell.markdown.map((tree) => h("div", { class: "markdown their" }, element(tree)));
  const none = !written && !error && !pictures.length && !texts.length && h("p", { class: "quiet" }, "No output.");
  return [block(written.trimEnd(), "output", "Output"), ...texts, block(error.trimEnd(), "output error", "Error"), ...pictures, none].filter(Boolean);
}

const ELEMENTS = new Set("div p h3 h4 h5 ul ol li blockquote pre code em strong hr br table thead tbody tr th td".split(" "));

/** Make elements from the daemon's tree of Markdown: known names become elements, everything else text. */
function element(part) {
  if (!Array.isArray(part)) return String(part);
  const [name, ...children] = part;
  return h(ELEMENTS.has(name) ? name : "span", {}, ...children.map(element));
}

/** A picture that is fetched when it comes into view, because its address needs the key. */
function makePicture(address, number) {
  const node = h("p", { class: "picture quiet" }, `Picture ${number}`);
  const seen = new IntersectionObserver(async ([entry]) => {
    if (!entry.isIntersecting) return;
    seen.disconnect();
    try {
      const url = await picture(address);
      const image = h("img", { src: url, alt: `Picture ${number} of the cell` });
      await image.decode();
      node.replaceChildren(image);
      URL.revokeObjectURL(url);
    } catch (error) {
      node.textContent = `Picture ${number} cannot be shown: ${error.message}`;
    }
  });
  seen.observe(node);
  return node;
}
