// The tree of frames. Only visible rows are elements, so that the cost does not grow with the number of goals.

import { byId, h, keep, show, write } from "./dom.js";
import { renderDetail } from "./frame.js";
import { link } from "./overview.js";
import { several } from "./words.js";

const ROW = 34;
const BESIDE = 8; // rows above and below what is in view
export const STATUSES = {
  planned: "planned",
  in_progress: "in progress",
  completed: "completed",
  failed: "failed",
  blocked: "blocked",
  invalidated: "invalidated",
};
const OPEN = new Set(["planned", "in_progress", "blocked"]);

const known = new Map();
const said = new Map(); // what somebody has opened (true) or closed (false)
let current = {};
let below = new Map();
let living = new Set(); // frames with something open at or below them
let lines = []; // what is open, in order
let places = new Map();
let active = null; // the row that the keyboard is at
let selected = null;
let visible = false;

const tree = byId("goals");
const list = h("div", { class: "goals-rows", role: "none" });

export const frameLink = (frame) => `#/f/${frame}`;

/** The goals that a session works on now. */
export const framesIn = (session) =>
  [...known.values()].filter((row) => row.session === session && row.status === "in_progress" && row.kind !== "session");

/** Apply changes; `whole`: they replace everything. */
export function learnFrames(news) {
  if (news.whole) known.clear();
  for (const row of news.rows) known.set(row.id, row);
  for (const id of news.gone) known.delete(id);
  current = news.current;
  arrange();
  if (news.whole || news.rows.some((row) => row.id === selected) || news.gone.includes(selected)) detail();
}

/** Show a frame of the tree, or only the tree. */
export function choose(frame, shown) {
  visible = shown;
  byId("frames-link").toggleAttribute("data-current", shown);
  if (selected !== frame) {
    selected = frame;
    detail();
  }
  if (!shown) return;
  if (frame !== null && known.has(frame)) {
    for (let up = known.get(frame).parent; known.has(up); up = known.get(up).parent) if (!isOpen(up)) said.set(up, true);
    active = frame;
  }
  arrange();
  if (frame !== null) reveal(frame);
}

function detail() {
  renderDetail(selected, selected === null || known.size === 0 || known.has(selected));
}

const numberOf = (id) => Number(id.slice(1));
const isOpen = (id) => said.get(id) ?? living.has(id);

function arrange() {
  const rows = [...known.values()].sort((one, other) => numberOf(one.id) - numberOf(other.id));
  below = Map.groupBy(rows, (row) => (known.has(row.parent) ? row.parent : null));
  living = new Set();
  for (const row of rows) {
    if (!OPEN.has(row.status)) continue;
    for (let up = row.id; known.has(up) && !living.has(up); up = known.get(up).parent) living.add(up);
  }
  lines = [];
  const left = [[below.get(null) ?? [], 0, 0]];
  while (left.length) {
    const [siblings, at, depth] = left.pop();
    if (at >= siblings.length) continue;
    const row = siblings[at];
    const children = below.get(row.id);
    const open = children !== undefined && isOpen(row.id);
    lines.push({ ...row, depth, at, of: siblings.length, open: children === undefined ? null : open });
    left.push([siblings, at + 1, depth]);
    if (open) left.push([children, 0, depth + 1]);
  }
  places = new Map(lines.map((line, place) => [line.id, place]));
  if (!places.has(active)) active = places.has(selected) ? selected : (lines[0]?.id ?? null);
  if (visible) draw();
}

function draw() {
  if (!list.isConnected) tree.append(list);
  show(byId("frames-none"), lines.length === 0);
  show(tree, lines.length > 0);
  const counts = Object.keys(STATUSES).map((status) => [status, [...known.values()].filter((row) => row.status === status && row.kind !== "session").length]);
  const parts = counts.filter(([, count]) => count > 0).map(([status, count]) => `${count} ${STATUSES[status]}`);
  write(byId("frames-facts"), parts.join(" · "));
  list.style.height = `${lines.length * ROW}px`;
  const first = Math.max(0, Math.floor(tree.scrollTop / ROW) - BESIDE);
  const last = Math.ceil((tree.scrollTop + tree.clientHeight) / ROW) + BESIDE;
  const inView = lines.slice(first, last);
  const at = places.get(active);
  if (at < first) inView.unshift(lines[at]);
  else if (at >= last) inView.push(lines[at]);
  keep(list, inView, (line) => line.id, makeRow);
}

function makeRow(line) {
  const id = line.id;
  const twist = h("span", { class: "twist", "aria-hidden": "true", onclick: (event) => toggle(event, id) });
  const state = h("span", { class: "hidden" });
  const dot = h("span", { class: "state" }, state);
  const what = h("bdi", { class: "what" });
  const came = h("bdi", { class: "came" });
  const mark = h("span", { class: "mark" }, "current");
  const files = h("span", { class: "files" });
  const where = h("a", { class: "in", tabindex: -1 });
  const node = h(
    "div",
    { class: "goal", role: "treeitem", onclick: () => pick(id), onfocus: () => (active = id) },
    twist,
    dot,
    h("span", { class: "id" }, id),
    what,
    came,
    mark,
    files,
    where,
  );
  where.addEventListener("click", (event) => event.stopPropagation());
  node.refresh = (now) => {
    node.style.top = `${places.get(id) * ROW}px`;
    node.style.setProperty("--depth", Math.min(now.depth, 12));
    node.dataset.status = now.status;
    node.dataset.kind = now.kind;
    const settings = { level: now.depth + 1, posinset: now.at + 1, setsize: now.of, expanded: now.open, selected: id === selected };
    for (const [name, value] of Object.entries(settings)) {
      if (value === null) node.removeAttribute(`aria-${name}`);
      else node.setAttribute(`aria-${name}`, value);
    }
    node.tabIndex = id === active ? 0 : -1;
    node.title = now.goal;
    dot.dataset.state = now.status;
    write(state, STATUSES[now.status]);
    write(what, now.goal);
    write(came, now.summary);
    show(mark, (current[id] ?? 0) > 0);
    write(files, now.artifacts ? several(now.artifacts, "artifact") : "");
    show(where, now.session !== null && now.status === "in_progress"); // where the others ran stands among the details
    write(where, now.session ?? "");
    where.href = link(now.session ?? "");
  };
  return node;
}

function toggle(event, id) {
  event.stopPropagation();
  said.set(id, !isOpen(id));
  arrange();
}

function pick(id) {
  active = id;
  if (location.hash === frameLink(id)) draw();
  else location.hash = frameLink(id);
}

/** Scroll a row into view; with `focus`, also focus it. */
function reveal(id, focus = false) {
  const top = places.get(id) * ROW;
  if (Number.isNaN(top)) return;
  if (top < tree.scrollTop) tree.scrollTop = top;
  else if (top + ROW > tree.scrollTop + tree.clientHeight) tree.scrollTop = top + ROW - tree.clientHeight;
  draw();
  if (focus) [...list.children].find((node) => node.dataset.key === id)?.focus({ preventScroll: true });
}

function go(place) {
  const line = lines[Math.max(0, Math.min(lines.length - 1, place))];
  if (line === undefined) return;
  active = line.id;
  reveal(active, true);
}

const KEYS = {
  ArrowDown: (at) => go(at + 1),
  ArrowUp: (at) => go(at - 1),
  Home: () => go(0),
  End: () => go(lines.length - 1),
  PageDown: (at) => go(at + Math.floor(tree.clientHeight / ROW)),
  PageUp: (at) => go(at - Math.floor(tree.clientHeight / ROW)),
  ArrowRight: (at, event) => (lines[at].open === false ? toggle(event, active) : lines[at].open && go(at + 1)),
  ArrowLeft: (at, event) => (lines[at].open ? toggle(event, active) : go(places.get(lines[at].parent) ?? at)),
  Enter: () => pick(active),
  " ": () => pick(active),
};

tree.addEventListener("keydown", (event) => {
  const at = places.get(active);
  if (at === undefined || !(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("a")) return;
  event.preventDefault();
  KEYS[event.key](at, event);
});
tree.addEventListener("scroll", draw);
new ResizeObserver(() => visible && draw()).observe(tree);

function all(open) {
  said.clear();
  for (const id of below.keys()) if (id !== null) said.set(id, open);
  arrange();
}
byId("frames-tools").append(
  h("button", { onclick: () => all(true) }, "Expand all"),
  h("button", { onclick: () => all(false) }, "Collapse all"),
);
