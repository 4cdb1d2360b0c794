// All sessions: the tree beside the page, and the overview if none is chosen.

import { byId, h, keep, markCurrent, show, theirs, write } from "./dom.js";
import { makeQuery } from "./queries.js";
import { runLink, runsOf } from "./runs.js";
import { bytes, moment, several } from "./words.js";

export const STATES = {
  idle: "idle",
  running: "running",
  waiting: "waits for answers",
  "not started": "not started",
  lost: "kernel lost",
  resting: "suspended",
  expired: "expired",
  ended: "ended",
};

export const link = (session) => `#/s/${encodeURIComponent(session)}`;

export function renderOverview({ sessions, resting, past, asked, frames }, chosen) {
  write(byId("frames-running"), frames.length ? `${frames.length} running` : "");
  const rows = asTree(sessions);
  keep(byId("tree"), rows, (row) => row.session, makeSession);
  for (const node of byId("tree").children) mark(node, chosen);
  show(byId("none"), rows.length === 0);
  keep(byId("resting"), resting, (row) => row.session, makeResting);
  for (const node of byId("resting").children) mark(node, chosen);
  show(byId("resting-part"), resting.length > 0);
  keep(byId("past"), past, (row) => `${row.session} ${row.ended} ${runsOf(row.session).length}`, makePast);
  write(byId("past-count"), String(past.length));
  show(byId("past-part"), past.length > 0);
  renderHome(sessions, asked);
}

/** Put each session below the one that it was forked from, unless that has ended. */
function asTree(sessions) {
  const there = new Set(sessions.map((row) => row.session));
  const below = Map.groupBy(sessions, (row) => (there.has(row.parent) ? row.parent : null));
  const rows = [];
  const visit = (parent, depth) => {
    for (const row of below.get(parent) ?? []) {
      rows.push({ ...row, depth });
      visit(row.session, depth + 1);
    }
  };
  visit(null, 0);
  return rows;
}

const mark = (node, chosen) => markCurrent(node.firstElementChild, node.dataset.key === chosen);

function makeSession(row) {
  const name = theirs(row.session, "span", { class: "their name" });
  const state = h("span", { class: "state" });
  const memory = h("span", { class: "number" });
  const note = h("span", { class: "note" });
  const anchor = h("a", { href: link(row.session) }, name, memory, state, note);
  const node = h("li", {}, anchor);
  node.refresh = (now) => {
    anchor.style.setProperty("--depth", Math.min(now.depth, 6));
    anchor.classList.toggle("fork", now.depth > 0);
    state.dataset.state = now.state;
    write(state, STATES[now.state] ?? now.state);
    write(memory, ["not started", "lost"].includes(now.state) ? "–" : bytes(now.memory_bytes));
    const missing = now.walls_missing.length;
    note.classList.toggle("bad", missing > 0);
    write(note, missing ? several(missing, "wall missing", "walls missing") : now.policy);
    anchor.title = now.parent ? `forked from ${now.parent}` : now.workspace;
  };
  return node;
}

function makeResting(row) {
  const until = row.kept_until === null ? "kept until it is used again" : `kept until ${moment(row.kept_until)}`;
  const name = theirs(row.session, "span", { class: "their name" });
  const state = h("span", { class: "state", "data-state": "resting" }, STATES.resting);
  return h("li", {}, h("a", { href: link(row.session), title: until }, name, state));
}

/** An ended session has nothing to show except the runs of models in it. */
function makePast(row) {
  const [run] = runsOf(row.session);
  const state = h("span", { class: "state", "data-state": row.state }, STATES[row.state]);
  const name = theirs(row.session, "span", { class: "their name" });
  const about = { class: "past", title: moment(row.ended) };
  return h("li", {}, run ? h("a", { ...about, href: runLink(run) }, name, state) : h("span", about, name, state));
}

function renderHome(sessions, asked) {
  const busy = sessions.filter((row) => row.state === "running").length;
  const held = sessions.reduce((sum, row) => sum + row.memory_bytes, 0);
  const texts = sessions.reduce((sum, row) => sum + row.content_bytes, 0);
  const pending = sessions.reduce((sum, row) => sum + row.pending, 0);
  const open = sessions.filter((row) => row.walls_missing.length > 0).length;
  const totals = [
    ["Sessions", sessions.length],
    ["Running", busy],
    ["Memory", bytes(held)],
    ["Loaded texts", bytes(texts)],
    ["Open queries", pending],
    ["Walls missing in", open],
    ["Refused attempts", sessions.reduce((sum, row) => sum + row.refused, 0)],
  ];
  keep(byId("totals"), totals, ([name]) => name, makeTotal);
  keep(byId("home-queries"), asked, (query) => `${query.session} ${query.id}`, makeQuery);
  show(byId("home-asked"), asked.length > 0);
  const first = byId("first");
  show(first, sessions.length === 0);
  if (sessions.length === 0 && !first.hasChildNodes()) {
    first.append("No session is open yet. Connect an agent (", h("code", {}, "rlm-kernel config claude-code"), "), or try ");
    first.append(h("code", {}, 'rlm-kernel run --session first "print(6 * 7)"'), ".");
  }
}

function makeTotal() {
  const name = h("dt");
  const value = h("dd");
  const node = h("div", {}, name, value);
  node.refresh = ([title, text]) => {
    write(name, title);
    write(value, String(text));
    node.classList.toggle("bad", title === "Walls missing in" && text > 0);
    node.classList.toggle("nothing", text === 0 || text === bytes(0));
  };
  return node;
}
