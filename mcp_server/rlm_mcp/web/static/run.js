// One run: the question, every turn with its messages, code and queries, and the answer.

import { codeBlock, counted, outcome } from "./cells.js";
import { ask, deedButton } from "./dialogs.js";
import { byId, h, keep, show, theirs, write } from "./dom.js";
import { cellOfRun, forgetRuns, wholeRun } from "./feed.js";
import { STATUSES, makeLine, runLink, used } from "./runs.js";
import { AUTHORS, bytes, dollars, duration, firstLine, moment, several, tokens } from "./words.js";

const OPEN_QUERIES = 5; // more of a cell are folded
const ROLES = { system: "System prompt", user: "Sent", assistant: "Replied" };

let seen = ""; // the line that what is shown was got for
let run = null;

/** Clear the page before the data of another run arrives. */
export function clearRun() {
  seen = "";
  run = null;
  byId("run").setAttribute("aria-busy", "true");
  for (const id of ["run-facts", "run-actions", "run-gauges", "run-texts", "run-children", "timeline", "turns"]) byId(id).replaceChildren();
  for (const id of ["run-answer-part", "run-texts-part", "run-children-part", "run-problem", "run-cut"]) show(byId(id), false);
  write(byId("run-question"), "");
}

/** Show a run; `line` is its entry in the list. */
export async function showRun({ key, number }, line) {
  const now = JSON.stringify(line ?? null);
  if (now === seen) return;
  seen = now;
  try {
    const found = await wholeRun(key, number);
    if (now === seen) render(found);
  } catch (error) {
    if (now !== seen) return;
    write(byId("run-problem"), error.message);
    show(byId("run-problem"), true);
  }
}

function render(found) {
  run = found;
  const { line } = run;
  show(byId("run-problem"), false);
  write(byId("run-question"), run.question || "(no question)");
  renderFacts(line);
  renderGauges(line);
  write(byId("run-answer"), run.answer ?? "");
  show(byId("run-answer-part"), run.answer !== null);
  keep(byId("run-texts"), run.texts, (text) => text.name, makeText);
  show(byId("run-texts-part"), run.texts.length > 0);
  keep(byId("run-children"), run.children, runLink, makeLine);
  show(byId("run-children-part"), run.children.length > 0);
  write(byId("run-cut"), `${several(run.left_out, "earlier turn is", "earlier turns are")} not shown.`);
  show(byId("run-cut"), run.left_out > 0);
  const turns = run.turns.map((part, at) => ({ ...part, place: run.left_out + at + 1 }));
  keep(byId("timeline"), turns, (part) => part.turn.number, makeChip);
  keep(byId("turns"), turns, (part) => part.turn.number, makeTurn);
  byId("run").setAttribute("aria-busy", "false");
}

function renderFacts(line) {
  const facts = [h("span", { class: "state pill", "data-state": line.status }, STATUSES[line.status] ?? line.status)];
  facts.push(theirs(line.model, "span", { class: "their" }), h("span", {}, "session ", theirs(line.session)));
  facts.push(h("span", {}, `policy ${run.policy}`), h("span", {}, `began ${moment(line.started)}`));
  if (line.stopped) facts.push(h("span", {}, "stopped: ", theirs(line.stopped)));
  if (run.above) facts.push(h("span", {}, "part of ", h("a", { href: runLink(run.above) }, theirs(firstLine(run.above.question)))));
  byId("run-facts").replaceChildren(...facts);
  const forget = h("button", { onclick: () => askToForget(line) }, "Forget…");
  byId("run-actions").replaceChildren(forget);
}

function askToForget(line) {
  const body = [h("p", {}, "This deletes the record of this run and of all runs below it. It cannot be undone.")];
  const deed = async () => {
    await forgetRuns(line.key);
    location.hash = "#/r";
    return "The run was deleted";
  };
  ask("Forget the run", body, [deedButton("Forget", deed)]);
}

function renderGauges(line) {
  const gauges = [
    ["Turns", String(line.turns), STATUSES[line.status]],
    ["Code", String(line.cells), line.failed ? `${line.failed} failed` : "none failed"],
    ["Sub-queries", String(line.queries), run.children.length ? `${several(run.children.length, "run")} below` : "asked by its code"],
    ["Tokens", tokens(line.input_tokens + line.output_tokens), `${tokens(line.input_tokens)} in, ${tokens(line.output_tokens)} out`],
    ["Cost", dollars(line.cost), "by the configured prices"],
    ["Time", duration(line.ended - line.started), `until ${moment(line.ended)}`],
  ];
  byId("run-gauges").replaceChildren(
    ...gauges.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("small", {}, more)))),
  );
}

function makeText(text) {
  const from = text.paths.length ? ` · ${text.paths.join(", ")}` : "";
  return h("li", {}, theirs(text.name, "b", { class: "their" }), theirs(` ${text.type}, ${bytes(text.size)}, ${several(text.line_count, "line")}${from}`, "span", { class: "their quiet" }));
}

const failed = (cells) => cells.some((cell) => cell.status !== "ok");
const asked = (cells) => cells.reduce((sum, cell) => sum + cell.queries.length, 0);

/** Make the chip of a turn in the timeline, with a summary of the turn. */
function makeChip({ turn, cells, place }) {
  const marks = [];
  if (turn.final !== null) marks.push(h("span", { class: "mark final" }, "answer"));
  if (failed(cells)) marks.push(h("span", { class: "mark bad" }, "error"));
  if (cells.length) marks.push(h("span", {}, `${cells.length} code`));
  if (asked(cells)) marks.push(h("span", {}, `${asked(cells)} sub`));
  marks.push(h("span", { class: "number" }, duration(turn.ended_at - turn.started_at)));
  const came = turn.final === null ? "" : ` = ${turn.final.slice(0, 60)}`;
  return h(
    "li",
    {},
    h(
      "button",
      { class: "chip", "data-turn": place, "data-state": turn.final !== null ? "final" : failed(cells) ? "failed" : "", onclick: () => goTo(place) },
      h("span", { class: "marks" }, h("b", {}, String(place)), ...marks),
      theirs(turn.reply.slice(0, 80), "span", { class: "their snippet" }),
      theirs(`${tokens(turn.input_tokens)} → ${tokens(turn.output_tokens)}${came}`, "span", { class: "their quiet snippet number" }),
    ),
  );
}

function makeTurn({ turn, cells, place }) {
  const facts = [moment(turn.started_at), duration(turn.ended_at - turn.started_at), used(turn)];
  const head = h("header", {}, h("h2", {}, `Turn ${place}`), theirs(turn.model, "span", { class: "their" }), h("span", { class: "number" }, facts.join(" · ")));
  const talk = h("div", { class: "talk" }, ...turn.said.map(makeMessage), ...makeReply(turn));
  const ran = cells.length ? cells.map(makeCell) : [h("p", { class: "quiet" }, "No code ran in this turn.")];
  const work = h("div", { class: "work" }, ...ran, ...makeVariables(turn.variables));
  return h("li", { class: "turn panel", tabindex: -1, id: `turn-${place}` }, head, h("div", { class: "pair" }, talk, work));
}

const size = (text) => h("small", {}, `${tokens(text.length)} characters`);
const said = (text, name, label) => theirs(text, "pre", { class: `said-text ${name}`, tabindex: 0, "aria-label": label });

function makeMessage({ role, content }) {
  const title = ROLES[role] ?? role;
  return h("details", { class: `message ${role === "system" ? "system" : ""}`, open: role !== "system" }, h("summary", {}, h("b", {}, title), " ", size(content)), said(content, "", title));
}

function makeReply(turn) {
  const reply = [h("section", { class: "message reply" }, h("p", {}, h("b", {}, "Reply"), " ", size(turn.reply)), said(turn.reply, "", "Reply"))];
  if (turn.final !== null) reply.push(h("section", { class: "message final" }, h("p", {}, h("b", {}, "Answer")), said(turn.final, "", "Answer")));
  return reply;
}

function makeCell(cell) {
  const facts = [cell.status, duration(cell.seconds)];
  if (cell.author !== "agent") facts.push(`by ${AUTHORS[cell.author]}`);
  const title = h("summary", {}, h("span", { class: "dot", "data-status": cell.status }), h("b", {}, `Code ${counted(cell)}`.trim()), " ", h("small", {}, facts.join(" · ")));
  const queries = cell.queries.map((query) => makeQuery(query, cell.queries.length <= OPEN_QUERIES));
  return h("details", { class: "ran", open: true }, title, codeBlock(cell.code), ...outcome(cell, cellOfRun(run.line.key, cell.number)), ...queries);
}

function makeQuery({ query, child }, open) {
  const facts = [query.model, used(query), duration(query.seconds)].filter(Boolean);
  const kind = query.recursive ? "rlm_query" : "llm_query";
  const answer = query.answer ?? query.error ?? `There is no answer; the query is ${query.state}.`;
  const below = child === null ? null : run.children[child];
  return h(
    "details",
    { class: "subquery", open },
    h("summary", {}, h("b", {}, kind), " ", h("code", {}, query.id), " ", theirs(facts.join(" · "), "small", { class: "their" })),
    said(query.prompt, "asked", "Prompt"),
    said(answer, query.answer === null ? "error" : "answered", "Answer"),
    below && h("p", {}, h("a", { href: runLink(below) }, `The run that answered it: ${several(below.turns, "turn")}`)),
  );
}

function makeVariables(variables) {
  if (variables.length === 0) return [];
  const one = ({ name, type, preview }) =>
    h("li", { title: type }, theirs(name, "b", { class: "their" }), " = ", theirs(preview, "span", { class: "their" }));
  return [h("details", { class: "held" }, h("summary", {}, h("b", {}, "Variables after it"), " ", h("small", {}, String(variables.length))), h("ul", {}, ...variables.map(one)))];
}

// --- from turn to turn ----------------------------------------------------------------------------

function goTo(place) {
  const node = byId(`turn-${place}`);
  node?.scrollIntoView({ block: "start" });
  node?.focus({ preventScroll: true });
}

/** Mark the current turn in the timeline, and scroll it into view there. */
function markRead(place) {
  const row = byId("timeline");
  for (const chip of row.querySelectorAll(".chip")) {
    const read = chip.dataset.turn === place;
    if (!read) chip.removeAttribute("aria-current");
    else {
      chip.setAttribute("aria-current", "step");
      row.scrollTo({ left: chip.offsetLeft - (row.clientWidth - chip.offsetWidth) / 2 });
    }
  }
}

byId("turns").addEventListener("focusin", (event) => markRead(event.target.closest(".turn").id.slice("turn-".length)));

const STEPS = { ArrowLeft: -1, j: -1, ArrowRight: 1, k: 1 };

document.addEventListener("keydown", (event) => {
  const busy = event.target.closest("input, textarea, select, dialog, pre, .tree") || event.ctrlKey || event.metaKey || event.altKey;
  if (busy || run === null || byId("run").hidden) return;
  if (event.key === "Escape") location.hash = run.above ? runLink(run.above) : "#/r";
  const step = STEPS[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const turns = [...byId("turns").children];
  const at = turns.indexOf(document.activeElement.closest(".turn"));
  const next = turns[Math.min(Math.max(at + step, 0), turns.length - 1)];
  if (next) goTo(Number(next.id.slice("turn-".length)));
});
