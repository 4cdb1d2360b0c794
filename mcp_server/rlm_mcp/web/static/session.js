// One session: its facts, running cell, variables and journal.

import { codeBlock, counted, outcome, showCode } from "./cells.js";
import { fork, interrupt, open, rollBack, save } from "./dialogs.js";
import { byId, h, keep, show, theirs, write } from "./dom.js";
import { cellOf } from "./feed.js";
import { frameLink, framesIn } from "./frames.js";
import { STATES, link } from "./overview.js";
import { inline } from "./python.js";
import { makeQuery } from "./queries.js";
import { runLink, runsOf } from "./runs.js";
import { AUTHORS, bytes, duration, firstLine, moment, several } from "./words.js";

let known = {};

const buttons = {
  interrupt: h("button", { onclick: (event) => interrupt(known.about.session, event.currentTarget) }, "Interrupt"),
  rollback: h("button", { onclick: () => rollBack(known.about.session, known.about.can_undo, known.about.latest) }, "Roll back…"),
  fork: h("button", { onclick: () => fork(known.about.session, known.about.policy) }, "Fork…"),
  open: h("button", { onclick: () => open(known.about.session, known.about.connection_file) }, "Open…"),
  export: h("button", { onclick: () => save(known.about.session) }, "Export…"),
};
byId("actions").append(...Object.values(buttons));

/** Clear the page before the data of another session arrives. */
export function clearSession(name) {
  byId("session").setAttribute("aria-busy", "true");
  write(byId("name"), name ?? "");
  byId("facts").replaceChildren(h("span", { class: "quiet" }, "Loading…"));
  for (const id of ["gauges", "queries", "journal", "variables", "walls", "policy"]) byId(id).replaceChildren();
  for (const id of ["running", "asked", "notice", "journal-none", "variables-note"]) show(byId(id), false);
  for (const id of ["variables-sum", "walls-sum", "policy-name", "policy-says"]) write(byId(id), "");
  for (const button of Object.values(buttons)) button.disabled = true;
  known = {};
}

const RENDER = {
  about: renderAbout,
  running: renderRunning,
  queries: renderQueries,
  variables: renderVariables,
  walls: renderWalls,
  journal: renderJournal,
};

export function renderSession(parts, news) {
  known = parts;
  for (const [name, render] of Object.entries(RENDER)) if (name in news) render(parts[name], parts);
  if (("sessions" in news || "tree" in news || "runs" in news) && !("about" in news)) renderAbout(parts.about, parts);
  if ("about" in news || "running" in news) renderButtons(parts);
  byId("session").setAttribute("aria-busy", "false");
}

const isOpen = (about) => about.state !== "resting";

function renderButtons({ about, running }) {
  buttons.interrupt.disabled = running === null;
  buttons.rollback.disabled = running !== null || !about.can_undo?.length;
  buttons.rollback.title = about.can_undo?.length ? "" : "There is no checkpoint from before the last cell";
  buttons.fork.disabled = !isOpen(about) || !about.pid;
  buttons.open.disabled = !isOpen(about);
  buttons.export.disabled = false;
}

function renderAbout(about, { sessions }) {
  write(byId("name"), about.session);
  const row = sessions.find((other) => other.session === about.session);
  const facts = [h("span", { class: "state pill", "data-state": about.state }, STATES[about.state] ?? about.state)];
  if (row?.parent) facts.push(h("span", {}, "forked from ", h("a", { href: link(row.parent) }, theirs(row.parent))));
  for (const frame of framesIn(about.session)) {
    facts.push(h("span", { class: "works" }, "works on ", h("a", { href: frameLink(frame.id) }, frame.id), " ", theirs(frame.goal)));
  }
  const [run] = runsOf(about.session);
  if (run) facts.push(h("span", { class: "works" }, "a model worked on ", h("a", { href: runLink(run) }, theirs(firstLine(run.question)))));
  if (about.workspace) facts.push(theirs(about.workspace, "span", { class: "their path" }));
  if (about.created) facts.push(h("span", {}, `since ${moment(about.created)}`));
  if (about.pid) facts.push(h("span", {}, `process ${about.pid}`));
  if (about.attachments) facts.push(h("span", {}, `open in ${several(about.attachments, "front end")}`));
  byId("facts").replaceChildren(...facts);
  const notice = about.notice || NOTICES[about.state] || "";
  write(byId("notice"), notice);
  show(byId("notice"), notice !== "");
  for (const id of ["gauges", "variables-part", "walls-part"]) show(byId(id), isOpen(about));
  renderGauges(about, row);
  renderPolicy(about);
}

const NOTICES = {
    resting: "This session was idle and is suspended. Its texts, queries and saved variables are kept until it is used.",
  lost: "The kernel of this session has ended. The next cell starts a new one, with every loaded text.",
  "not started": "No code has run yet. The kernel starts with the first cell.",
};

function renderGauges(about, row) {
  const gauges = [];
  if (about.pid) {
    const share = h("meter", { min: 0, max: about.memory_limit, value: about.memory_bytes, "aria-label": "Memory" });
    gauges.push(["Memory", bytes(about.memory_bytes), `of ${bytes(about.memory_limit)} for its code`, share]);
    const most = Math.max(0, ...about.can_undo);
    gauges.push(["Can be undone", most ? several(most, "cell") : "nothing", `copies of the process: ${about.checkpoint}`]);
    if (about.unsaved) gauges.push(["Not on disk yet", about.unsaved.cells ? several(about.unsaved.cells, "cell") : "nothing", about.unsaved.reason ? `a save failed and will be retried: ${about.unsaved.reason}` : "saved automatically later"]);
    if (about.uncopied) gauges.push(["No checkpoint", several(about.uncopied.age, "cell"), `a crash would lose them: ${about.uncopied.reason}`]);
  }
  if (about.refused) {
    const { system_calls: calls, latest_call: latest, audit, cells } = about.refused;
    const ends = about.refused_limit ? `; ${about.refused_limit} end the session` : "";
    const last = latest ? `, the last of them ${latest}` : "";
    gauges.push(["Refused attempts", String(calls + audit), `system calls: ${calls}${last}; by the audit hook, as the kernel reports: ${audit}${ends}; ${several(cells, "cell")} not compiled`]);
  }
  if (row) {
    gauges.push(["Open queries", String(row.pending), row.pending ? "code waits for the answers, or reads them later" : "none"]);
    gauges.push(["Last used", moment(row.last_used), `ends after ${duration(about.idle_seconds)} without use; viewing does not count`]);
  }
  const boxes = gauges.map(([name, value, more, extra]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("small", {}, more), extra)),
  );
  byId("gauges").replaceChildren(...boxes);
}

function renderPolicy(about) {
  write(byId("policy-name"), about.policy);
  write(byId("policy-says"), about.policy_says ?? "");
  const pairs = isOpen(about)
    ? [
        ["File when read", `SHA-256 ${about.policy_sha256.slice(0, 12)}`],
        ["Network", about.network ? "allowed" : "none"],
        ["Time limit of a cell", duration(about.cell_seconds)],
        ["Memory for code", bytes(about.memory_limit)],
        ["Ends after idling for", duration(about.idle_seconds)],
      ]
    : [];
  byId("policy").replaceChildren(...pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function renderRunning(running) {
  show(byId("running"), running !== null);
  if (running === null) return;
  const who = `${AUTHORS[running.author]}’s cell`;
  const waits = running.waits_for.length ? `, waits for ${running.waits_for.join(", ")}` : "";
  const behind = running.behind ? `, ${several(running.behind, "cell")} behind it` : "";
  byId("running-title").replaceChildren("Running now ", h("small", {}, `${who} since ${moment(running.since)}${waits}${behind}`));
  showCode(byId("running-code"), running.code);
  const output = byId("running-output");
  const follows = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
  const text = [running.stdout, running.stderr].filter(Boolean).join("\n");
  output.classList.toggle("quiet", text === "");
  write(output, text || "No output yet.");
  if (follows) output.scrollTop = output.scrollHeight;
}

function renderQueries(queries, { about }) {
  const rows = queries.map((query) => ({ ...query, session: about.session }));
  keep(byId("queries"), rows, (query) => query.id, makeQuery);
  show(byId("asked"), queries.length > 0);
}

function renderVariables({ rows, note }) {
  const sum = rows.reduce((total, row) => total + row.size, 0);
  write(byId("variables-sum"), rows.length ? `${rows.length}, ${bytes(sum)}` : note ? "" : "none");
  write(byId("variables-note"), note);
  show(byId("variables-note"), note !== "");
  const largest = Math.max(1, ...rows.map((row) => row.size));
  keep(byId("variables"), rows.map((row) => ({ ...row, share: row.size / largest })), (row) => `${row.text} ${row.name}`, makeVariable);
}

function makeVariable() {
  const name = h("span", { class: "their name" });
  const size = h("span", { class: "number" });
  const bar = h("span", { class: "share", "aria-hidden": "true" });
  const about = h("span", { class: "their note" });
  const node = h("li", {}, name, size, bar, about);
  node.refresh = (row) => {
    write(name, row.name);
    write(size, bytes(row.size));
    bar.style.setProperty("--share", row.share);
    const lines = row.lines === null ? "" : row.text ? several(row.lines, "line") : `length ${row.lines}`;
    const preview = row.preview === `<${row.type}>` ? "" : row.preview.startsWith(`<${row.type}: `) ? row.preview.slice(row.type.length + 3, -1) : row.preview;
    write(about, [row.text ? `loaded text, ${row.type}` : row.type, lines, preview].filter(Boolean).join(" · "));
    node.classList.toggle("text", row.text);
  };
  return node;
}

function renderWalls(walls) {
  const missing = walls.filter((wall) => !wall.standing).length;
  const standing = walls.length - missing;
  const sum = walls.length === 0 ? "no kernel" : missing ? `${several(missing, "wall")} missing` : `all ${standing} active`;
  write(byId("walls-sum"), sum);
  byId("walls-sum").classList.toggle("bad", missing > 0);
  const rows = walls.toSorted((one, other) => one.standing - other.standing);
  byId("walls").replaceChildren(...rows.map(makeWall));
}

function makeWall(wall) {
  const state = wall.standing ? "active" : wall.required ? "missing, but required" : "missing";
  const name = wall.name.replaceAll("_", " ");
  return h(
    "li",
    { class: wall.standing ? "standing" : "missing" },
    h("details", { open: !wall.standing }, h("summary", {}, h("b", {}, name), h("span", { class: wall.standing ? "hidden" : "" }, state)), theirs(wall.detail, "p")),
  );
}

function renderJournal(cells, { about }) {
  const rows = cells.map((cell) => ({ ...cell, session: about.session }));
  keep(byId("journal"), rows, (cell) => `${cell.session} ${cell.number}`, makeCell);
  show(byId("journal-none"), cells.length === 0);
}

function makeCell(cell) {
  const asked = cell.queries.length ? ` · asked ${cell.queries.join(", ")}` : "";
  const shown = cell.pictures ? `${several(cell.pictures, "picture")} · ` : "";
  const times = `${moment(cell.started)} · ${duration(cell.seconds)}`;
  const title = h("code", { class: "their" }, ...inline(firstLine(cell.code) || "(an empty cell)"));
  const summary = h(
    "summary",
    { title: `${cell.author}, ${cell.status}` },
    h("span", { class: "dot", "data-status": cell.status }, h("span", { class: "hidden" }, cell.status)),
    h("span", { class: "count number" }, counted(cell)),
    title,
    h("span", { class: "note" }, `${shown}${cell.author} · ${times}`),
  );
  const end = h("p", { class: "quiet" }, `${cell.status} · by ${AUTHORS[cell.author]}${asked}`);
  return h("li", { class: "cell" }, h("details", {}, summary, codeBlock(cell.code), ...outcome(cell, cellOf(cell.session, cell.number)), end));
}
