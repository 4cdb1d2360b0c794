// The queue: the state of every task, dependencies, and conflicts. Only visible cards are elements.

import { byId, h, keep, markCurrent, show, theirs, write } from "./dom.js";
import { drawGraph } from "./graph.js";
import { openTask } from "./task.js";
import { duration, moment, several } from "./words.js";

const CARD = 84;
const BESIDE = 4; // cards above and below the visible ones
const COLUMNS = { ready: "Ready", in_progress: "In progress", stale: "Stale", waiting: "Waiting", blocked: "Blocked", done: "Done" };
const VIEWS = { board: "Board", graph: "Graph", conflicts: "Conflicts" };
const ENDED = new Set(["completed", "failed", "invalidated"]);
const AGE_TICK = 5_000;

const known = new Map();
let besides = { conflicts: [], roots: {}, stuck: [] };
let root = null; // the tree that is shown
let scope = ""; // a story or epic of it; empty: all
let view = "board";
let visible = false;
let active = null; // the card with the keyboard focus

/** Apply changes; `whole`: they replace everything. */
export function learnWork(news) {
  if (news.whole) known.clear();
  for (const card of news.cards) known.set(card.id, card);
  for (const id of news.gone) known.delete(id);
  for (const name of Object.keys(besides)) if (name in news) besides = { ...besides, [name]: news[name] };
  draw();
}

/** Show one of the views of the queue, or nothing. */
export function showWork(wanted, shown) {
  view = wanted;
  visible = shown;
  byId("work-link").toggleAttribute("data-current", shown);
  draw();
}

const columnOf = (card) => {
  if (card.kind !== "task") return card.ends || card.state === "blocked" ? "blocked" : ENDED.has(card.state) ? "done" : null;
  if (ENDED.has(card.state)) return "done";
  return card.state === "planned" ? "waiting" : card.state; // planned: something below it is open
};
const numberOf = (id) => Number(id.slice(1));

/** The cards of the chosen tree and story. */
function chosenCards() {
  const inScope = (card) => {
    for (let at = card; at !== undefined; at = known.get(at.parent)) if (at.id === scope) return true;
    return false;
  };
  return [...known.values()].filter((card) => card.root === root && (scope === "" || inScope(card)));
}

function draw() {
  if (!visible) return;
  const roots = Object.keys(besides.roots).sort((one, other) => numberOf(one) - numberOf(other));
  if (!roots.includes(root)) root = roots.at(-1) ?? null;
  if (!known.has(scope)) scope = "";
  const cards = chosenCards();
  show(byId("work-none"), cards.length === 0);
  show(byId("board"), view === "board" && cards.length > 0);
  show(byId("graph"), view === "graph" && cards.length > 0);
  show(byId("conflicts"), view === "conflicts" && cards.length > 0);
  drawTools(roots);
  drawStuck();
  const columns = Object.fromEntries(Object.keys(COLUMNS).map((name) => [name, []]));
  for (const card of cards) columns[columnOf(card)]?.push(card);
  const facts = Object.entries(COLUMNS).filter(([name]) => columns[name].length).map(([name, title]) => `${columns[name].length} ${title.toLowerCase()}`);
  write(byId("work-facts"), facts.join(" · "));
  if (view === "board") drawBoard(columns);
  else if (view === "graph") drawGraph(byId("graph"), cards, open);
  else drawConflicts();
}

const open = (id) => openTask(known.get(id), known);

// --- the board ----------------------------------------------------------------------------------------

/** The best first; among the done, the latest first. */
const byRank = {
  done: (one, other) => numberOf(other.id) - numberOf(one.id),
  others: (one, other) => other.priority - one.priority || numberOf(one.id) - numberOf(other.id),
};

function drawBoard(columns) {
  const shown = Object.entries(COLUMNS).map(([name, title]) => {
    const cards = columns[name].sort(byRank[name] ?? byRank.others);
    return { name, title, cards };
  });
  if (!shown.some(({ cards }) => cards.some((card) => card.id === active))) active = shown.find(({ cards }) => cards.length)?.cards[0].id ?? null;
  keep(byId("board"), shown, ({ name }) => name, makeColumn);
}

function makeColumn({ name, title }) {
  const count = h("span", { class: "number" });
  const rows = h("div", { class: "cards-rows", role: "none" });
  const list = h("div", { class: "cards", role: "list", "aria-label": title }, rows);
  const node = h("section", { class: "lane", "data-lane": name }, h("h2", {}, `${title} `, count), list);
  let cards = [];
  const fill = () => {
    rows.style.height = `${cards.length * CARD}px`;
    const first = Math.max(0, Math.floor(list.scrollTop / CARD) - BESIDE);
    const last = Math.ceil((list.scrollTop + list.clientHeight) / CARD) + BESIDE;
    const inView = cards.map((card, place) => ({ card, place, of: cards.length })).filter(({ card, place }) => (place >= first && place < last) || card.id === active);
    keep(rows, inView, ({ card }) => card.id, makeCard);
  };
  list.addEventListener("scroll", fill);
  new ResizeObserver(fill).observe(list);
  node.refresh = (now) => {
    cards = now.cards;
    write(count, String(cards.length));
    node.toggleAttribute("data-empty", cards.length === 0);
    fill();
  };
  node.fill = fill;
  node.go = (place) => {
    const card = cards[Math.max(0, Math.min(cards.length - 1, place))];
    if (card === undefined) return false;
    active = card.id;
    const top = cards.indexOf(card) * CARD;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + CARD > list.scrollTop + list.clientHeight) list.scrollTop = top + CARD - list.clientHeight;
    for (const lane of byId("board").children) lane.fill();
    [...rows.children].find((one) => one.dataset.key === active)?.firstElementChild.focus({ preventScroll: true });
    return true;
  };
  node.placeOf = (id) => cards.findIndex((card) => card.id === id);
  return node;
}

function makeCard({ card: { id } }) {
  const what = h("bdi", { class: "what" });
  const note = h("span", { class: "note" });
  const button = h("button", { class: "card", onclick: () => open(id), onfocus: () => (active = id) }, h("span", { class: "id" }, id), what, note);
  const node = h("div", { role: "listitem", class: "card-row" }, button);
  node.refresh = ({ card, place, of }) => {
    node.style.top = `${place * CARD}px`;
    node.setAttribute("aria-posinset", place + 1);
    node.setAttribute("aria-setsize", of);
    button.tabIndex = id === active ? 0 : -1;
    button.dataset.state = card.state;
    button.dataset.priority = card.priority;
    button.title = card.goal;
    write(what, card.goal);
    write(note, noteOf(card));
  };
  return node;
}

/** The most important fact about a card. */
function noteOf(card) {
  const now = Date.now() / 1000;
  const waits = card.links.filter((link) => link.waits).map((link) => link.on);
  switch (card.state) {
    case "in_progress":
      if (card.ends) return "everything below has ended: end it";
      return card.holder ? `${card.holder} · ${duration(now - card.claimed)}` : "";
    case "stale":
      return `${card.holder} · silent for ${duration(now - card.beat)}`;
    case "waiting":
      return waits.length ? `waits for ${waits.slice(0, 4).join(", ")}${waits.length > 4 ? "…" : ""}` : "its parent is waiting";
    case "planned":
      return "has open tasks below";
    case "blocked":
    case "failed":
      return card.reason || card.state;
    case "ready":
      return heldBack(card.id) ?? (card.attempt ? `attempt ${card.attempt + 1}` : `priority ${card.priority}`);
    default:
      return card.state;
  }
}

function heldBack(id) {
  const found = besides.conflicts.find((one) => one.kind === "ready" && one.frame === id);
  return found && `${found.other} has its path`;
}

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 5, PageUp: -5, Home: -Infinity, End: Infinity };

byId("board").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const lanes = [...byId("board").children];
  const at = lanes.findIndex((lane) => lane.placeOf(active) >= 0);
  if (at < 0) return;
  if (event.key in STEPS) {
    event.preventDefault();
    lanes[at].go(lanes[at].placeOf(active) + STEPS[event.key]);
  } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    event.preventDefault();
    const step = event.key === "ArrowRight" ? 1 : -1;
    const place = lanes[at].placeOf(active);
    for (let to = at + step; to >= 0 && to < lanes.length; to += step) if (lanes[to].go(place)) break;
  }
});

// Update ages even if nothing changes.
setInterval(() => visible && view === "board" && draw(), AGE_TICK);

// --- above it -----------------------------------------------------------------------------------------

const ways = h("div", { class: "tabs", role: "navigation", "aria-label": "Views of the queue" });
const trees = h("select", { "aria-label": "Repository", onchange: () => ((root = trees.value), (scope = ""), draw()) });
const stories = h("select", { "aria-label": "Story", onchange: () => ((scope = stories.value), draw()) });
byId("work-tools").append(ways, trees, stories);

function drawTools(roots) {
  const mine = besides.conflicts.filter((one) => one.root === root).length;
  const tabs = Object.entries(VIEWS).map(([name, title]) => ({ name, title: name === "conflicts" && mine ? `${title} (${mine})` : title }));
  keep(ways, tabs, ({ name }) => name, ({ name }) => {
    const tab = h("a", { href: name === "board" ? "#/w" : `#/w/${name}` });
    tab.refresh = ({ title }) => {
      write(tab, title);
      markCurrent(tab, name === view);
    };
    return tab;
  });
  const shown = roots.map((id) => [id, besides.roots[id].split("/").filter((part) => part && part !== ".git").at(-1) ?? id]);
  choices(trees, shown, root);
  show(trees, roots.length > 1);
  const above = [...known.values()].filter((card) => card.root === root && card.kind !== "task");
  choices(stories, [["", "All stories"], ...above.map((card) => [card.id, `${card.id} ${card.goal.slice(0, 40)}`])], scope);
  show(stories, above.length > 0);
}

function choices(select, options, value) {
  keep(select, options, ([key]) => key, ([key]) => {
    const option = h("option", { value: key });
    option.refresh = ([, text]) => write(option, text);
    return option;
  });
  select.value = value ?? "";
}

function drawStuck() {
  const mine = besides.stuck.filter((one) => one.root === root);
  show(byId("work-stuck"), mine.length > 0);
  const words = { failed: "failed", blocked: "is blocked" };
  keep(byId("work-stuck"), mine, ({ frame }) => frame, ({ frame }) => {
    const node = h("li", {}, "Stuck: ", h("button", { class: "plain", onclick: () => open(frame) }, frame), h("span"));
    node.refresh = ({ status, waiting }) => write(node.lastElementChild, ` ${words[status] ?? "is open although everything below it has ended"}; tasks waiting for it: ${waiting}`);
    return node;
  });
}

// --- conflicts ----------------------------------------------------------------------------------------

const SAYS = {
  leases: "Both tasks are claimed and declare the same path",
  ready: "The task is ready, but another task has claimed its path",
  write: "A write was refused",
};

function drawConflicts() {
  const box = byId("conflicts");
  const mine = besides.conflicts.filter((one) => one.root === root);
  const button = (id) => h("button", { class: "plain", onclick: () => open(id) }, id);
  const row = (one) =>
    h("li", {}, theirs(one.path.replace(/^\//, "") || "the whole repository", "span", { class: "their path" }),
      one.frame && button(one.frame), one.frame && " and ", button(one.other),
      one.kind === "write" && h("span", { class: "quiet" }, ` refused to ${one.who}, ${moment(one.at)}`));
  const parts = Object.entries(SAYS).map(([kind, says]) => [says, mine.filter((one) => one.kind === kind)]).filter(([, found]) => found.length);
  box.replaceChildren(
    ...parts.flatMap(([says, found]) => [h("h2", {}, says, " ", h("small", {}, several(found.length, "time"))), h("ul", { class: "clashes" }, ...found.map(row))]),
    ...(parts.length ? [] : [h("p", { class: "quiet" }, "No conflicts.")]),
  );
}

