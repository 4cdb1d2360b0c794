// The runs of models: all of them as a tree, and the open one.

import { byId, h, keep, show, theirs, write } from "./dom.js";
import { clearRun, showRun } from "./run.js";
import { dollars, duration, moment, several, tokens } from "./words.js";

export const STATUSES = {
  answered: "answered",
  out_of_turns: "out of turns",
  open: "no answer yet",
  unanswered: "no answer",
};

let lines = [];
let chosen = null; // {key, number}
let shown = false;

export const runLink = (line) => `#/r/${line.key}/${line.number}`;

/** The runs of sessions with this name, the latest first. */
export const runsOf = (session) => lines.filter((line) => line.session === session);

export function learnRuns(news) {
  lines = news;
  write(byId("runs-count"), lines.length ? String(lines.length) : "");
  if (shown) render();
}

/** Show the list, or one run; `what` is null, or a session's key and a run's number. */
export function showRuns(what, visible) {
  const same = what?.key === chosen?.key && what?.number === chosen?.number;
  [chosen, shown] = [what, visible];
  if (!same || !visible) clearRun();
  if (visible) render();
}

function render() {
  show(byId("runs"), chosen === null);
  show(byId("run"), chosen !== null);
  if (chosen !== null) {
    showRun(chosen, lines.find((line) => line.key === chosen.key && line.number === chosen.number));
    return;
  }
  show(byId("runs-none"), lines.length === 0);
  keep(byId("runs-list"), asTree(lines), runLink, makeLine);
}

/** The run whose code started this one: the latest run of its session that had started. */
const above = (line) => lines.find((other) => other.key === line.parent && other.started <= line.started);

/** Put each run below the one that started it; the latest first, but children in their order. */
function asTree(all) {
  const below = Map.groupBy(all, (line) => above(line) ?? null);
  const rows = [];
  const visit = (parent, depth) => {
    const found = below.get(parent) ?? [];
    for (const line of parent === null ? found : found.toReversed()) {
      rows.push({ ...line, depth });
      visit(line, depth + 1);
    }
  };
  visit(null, 0);
  return rows;
}

export function makeLine(line) {
  const state = h("span", { class: "state" });
  const note = h("span", { class: "note number" });
  const came = h("span", { class: "came their" });
  const anchor = h("a", { href: runLink(line) }, state, theirs(line.question || "(no question)", "span", { class: "what their" }), came, note);
  const node = h("li", { class: "run-line" }, anchor);
  node.refresh = (now) => {
    anchor.style.setProperty("--depth", Math.min(now.depth ?? 0, 6));
    state.dataset.state = now.status;
    write(state, STATUSES[now.status] ?? now.status);
    write(came, now.answer === null ? "" : `= ${now.answer}`);
    write(note, [now.model, several(now.turns, "turn"), used(now), duration(now.ended - now.started), moment(now.started)].join(" · "));
  };
  return node;
}

export const used = (one) => `${tokens(one.input_tokens)} → ${tokens(one.output_tokens)} tokens · ${dollars(one.cost)}`;
