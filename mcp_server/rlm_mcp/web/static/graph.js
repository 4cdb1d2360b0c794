// Dependencies: each task is to the right of all tasks that it waits for. Only the visible part is drawn.

import { h, keep, write } from "./dom.js";

const WIDTH = 190;
const HEIGHT = 44;
const ACROSS = WIDTH + 70;
const DOWN = HEIGHT + 14;
const EDGE = 12;
const ENDED = new Set(["completed", "failed", "invalidated"]);
const NOTES = new Set(["found_in", "supersedes"]);
const SVG = "http://www.w3.org/2000/svg";

let places = new Map(); // id -> { card, x, y }
let edges = []; // { from, to, waits }
let opened = () => {};
let drawnIn = null;
let active = null;

/** Draw the tasks with dependencies; `open` shows one. */
export function drawGraph(box, cards, open) {
  opened = open;
  arrange(cards);
  if (drawnIn !== box) begin(box);
  const size = { x: 0, y: 0 };
  for (const { x, y } of places.values()) Object.assign(size, { x: Math.max(size.x, x + WIDTH), y: Math.max(size.y, y + HEIGHT) });
  const [sheet] = box.children;
  sheet.style.width = `${size.x + EDGE}px`;
  sheet.style.height = `${size.y + EDGE}px`;
  fill(box);
}

/** Place the tasks in layers: each one to the right of the last task that it waits for. */
export function arrange(cards) {
  const all = new Map(cards.map((card) => [card.id, card]));
  const waits = new Map(cards.map((card) => [card.id, card.links.filter((link) => !NOTES.has(link.type) && all.has(link.on))]));
  const shown = new Set();
  for (const card of cards) {
    for (const link of waits.get(card.id)) {
      if (ENDED.has(card.state) && ENDED.has(all.get(link.on).state)) continue;
      shown.add(card.id).add(link.on);
    }
  }
  const layers = new Map();
  const later = new Map();
  const left = new Map();
  for (const id of shown) left.set(id, 0);
  for (const id of shown) {
    for (const { on } of waits.get(id)) {
      if (!shown.has(on)) continue;
      left.set(id, left.get(id) + 1);
      if (!later.has(on)) later.set(on, []);
      later.get(on).push(id);
    }
  }
  const due = [...shown].filter((id) => left.get(id) === 0);
  for (const id of due) layers.set(id, 0);
  for (const id of due) {
    for (const next of later.get(id) ?? []) {
      layers.set(next, Math.max(layers.get(next) ?? 0, layers.get(id) + 1));
      left.set(next, left.get(next) - 1);
      if (left.get(next) === 0) due.push(next);
    }
  }
  const columns = [];
  for (const id of due) (columns[layers.get(id)] ??= []).push(id);
  const rows = new Map();
  for (const column of columns) {
    // Near the tasks that it waits for, so that fewer lines cross.
    const middle = (id) => {
      const known = waits.get(id).map(({ on }) => rows.get(on)).filter((row) => row !== undefined);
      return known.length ? known.reduce((sum, row) => sum + row, 0) / known.length : Number(id.slice(1)) / 1e9;
    };
    column.map((id) => [middle(id), id]).sort((one, other) => one[0] - other[0]).forEach(([, id], row) => rows.set(id, row));
  }
  places = new Map(due.map((id) => [id, { card: all.get(id), x: EDGE + layers.get(id) * ACROSS, y: EDGE + rows.get(id) * DOWN }]));
  edges = due.flatMap((id) => waits.get(id).filter(({ on }) => places.has(on)).map((link) => ({ key: `${link.on} ${id} ${link.type}`, from: link.on, to: id, waits: link.waits, type: link.type })));
  if (!places.has(active)) active = due[0] ?? null;
}

function begin(box) {
  drawnIn = box;
  const lines = document.createElementNS(SVG, "svg");
  lines.setAttribute("aria-hidden", "true");
  const nodes = h("div", { class: "nodes" });
  const none = h("p", { class: "quiet" }, "No dependencies.");
  box.replaceChildren(h("div", { class: "sheet" }, lines, nodes), none);
  box.addEventListener("scroll", () => fill(box));
  new ResizeObserver(() => fill(box)).observe(box);
  box.addEventListener("keydown", (event) => go(box, event));
}

function fill(box) {
  const [sheet, none] = box.children;
  none.hidden = places.size > 0;
  const view = { left: box.scrollLeft - ACROSS, right: box.scrollLeft + box.clientWidth + ACROSS, top: box.scrollTop - DOWN, bottom: box.scrollTop + box.clientHeight + DOWN };
  const inView = [...places.values()].filter(({ card, x, y }) => (x > view.left && x < view.right && y > view.top && y < view.bottom) || card.id === active);
  const [lines, nodes] = sheet.children;
  keep(nodes, inView, ({ card }) => card.id, makeNode);
  const crosses = ({ from, to }) => {
    const [one, other] = [places.get(from), places.get(to)];
    return one.x < view.right && other.x > view.left && Math.min(one.y, other.y) < view.bottom && Math.max(one.y, other.y) > view.top;
  };
  keep(lines, edges.filter(crosses), ({ key }) => key, makeEdge);
}

function makeNode({ card: { id } }) {
  const what = h("bdi", { class: "what" });
  const node = h("button", { class: "node", onclick: () => opened(id), onfocus: () => (active = id) }, h("span", { class: "id" }, id), what);
  node.refresh = ({ card, x, y }) => {
    node.style.left = `${x}px`;
    node.style.top = `${y}px`;
    node.tabIndex = id === active ? 0 : -1;
    node.dataset.state = card.state;
    const waits = card.links.filter((link) => link.waits).map((link) => link.on);
    node.title = card.goal;
    node.setAttribute("aria-label", `${id} ${card.goal}, ${card.state.replace("_", " ")}${waits.length ? `, waits for ${waits.join(", ")}` : ""}`);
    write(what, card.goal);
  };
  return node;
}

function makeEdge() {
  const line = document.createElementNS(SVG, "path");
  line.refresh = ({ from, to, waits, type }) => {
    const [one, other] = [places.get(from), places.get(to)];
    const [x1, y1, x2, y2] = [one.x + WIDTH, one.y + HEIGHT / 2, other.x, other.y + HEIGHT / 2];
    const bend = Math.max(30, (x2 - x1) / 2);
    line.setAttribute("d", `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
    line.setAttribute("class", `${waits ? "open" : "done"} ${type}`);
  };
  return line;
}

/** Arrow keys move to the nearest task in that direction. */
function go(box, event) {
  const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const way = ways[event.key];
  const at = places.get(active);
  if (way === undefined || at === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const cost = ({ x, y }) => {
    const [along, aside] = way[0] ? [(x - at.x) * way[0], Math.abs(y - at.y)] : [(y - at.y) * way[1], Math.abs(x - at.x) * 4];
    return along > 0 ? along + aside : Infinity;
  };
  const found = [...places.values()].reduce((best, one) => (cost(one) < cost(best) ? one : best), at);
  if (cost(found) === Infinity) return;
  active = found.card.id;
  if (found.x < box.scrollLeft || found.x + WIDTH > box.scrollLeft + box.clientWidth) box.scrollLeft = found.x - WIDTH / 2;
  if (found.y < box.scrollTop || found.y + HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = found.y - box.clientHeight / 2;
  fill(box);
  [...box.querySelectorAll(".node")].find((node) => node.dataset.key === active)?.focus({ preventScroll: true });
}
