// One frame: its goal, its result, and the actions on it.

import { ask, attempt, deedButton } from "./dialogs.js";
import { byId, h, show, theirs } from "./dom.js";
import { actOnFrame, saveFrame, wholeFrame } from "./feed.js";
import { STATUSES, frameLink } from "./frames.js";
import { link } from "./overview.js";
import { moment, several } from "./words.js";

let wanted = null;

/** Show a frame, or none for null. */
export async function renderDetail(id, there) {
  wanted = id;
  const box = byId("frame");
  show(box, id !== null);
  if (id === null) return;
  if (!there) {
    box.replaceChildren(h("p", { class: "quiet" }, `Frame ${id} no longer exists.`));
    return;
  }
  try {
    const detail = await wholeFrame(id);
    if (wanted === id) fill(box, detail);
  } catch (error) {
    if (wanted === id) box.replaceChildren(h("p", { class: "quiet" }, error.message));
  }
}

function fill(box, { frame, files, may }) {
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.deed : undefined;
  const facts = [h("span", { class: "state pill", "data-state": frame.status }, STATUSES[frame.status] ?? frame.status)];
  facts.push(h("span", {}, frame.kind));
  if (frame.parent) facts.push(h("span", {}, "below ", h("a", { href: frameLink(frame.parent) }, frame.parent)));
  if (frame.session) facts.push(h("span", {}, "in ", h("a", { href: link(frame.session) }, theirs(frame.session))));
  if (frame.started_at) facts.push(h("span", {}, `started ${moment(frame.started_at)}`));
  if (frame.ended_at) facts.push(h("span", {}, `ended ${moment(frame.ended_at)}`));
  const by = { caller: "", extract: " (an extract of its cells)", model: " (by a model)" }[frame.summary_by] ?? "";
  box.replaceChildren(
    h("h2", { class: "id" }, `Frame ${frame.id}`),
    theirs(frame.goal, "p", { class: "their whole wanted", tabindex: 0, "aria-label": "Goal" }),
    h("p", { class: "facts" }, ...facts),
    h("div", { class: "actions", role: "toolbar", "aria-label": "Frame" }, ...buttons(frame, may)),
    ...part(`Summary${by}`, frame.summary && [theirs(frame.summary, "p", { class: "their whole", tabindex: 0, "aria-label": "Summary" })]),
    ...part("Artifacts", named(frame.artifacts)),
    ...part("Decisions", named(frame.decisions)),
    ...part("Handed over", named(frame.handed_over)),
    ...part("Log", frame.log && [theirs(frame.log, "p", { class: "their path" })]),
    ...part("Save", [h("div", { class: "actions" }, ...["md", "ipynb", "json"].filter(kept(files)).map((kind) => saveButton(frame.id, kind)))]),
    ...part("History", [h("ol", { class: "events" }, ...frame.events.map(event))]),
  );
  if (focused) box.querySelector(`[data-deed="${focused}"]`)?.focus();
}

const part = (title, content) => (content ? [h("section", {}, h("h3", {}, title), ...content)] : []);
const FILES = { md: "Log", ipynb: "Notebook", json: "Tree" };
const kept = (files) => (kind) => kind === "json" || files.includes(kind);
const saveButton = (id, kind) =>
  h("button", { onclick: ({ target }) => attempt([target], async () => (await saveFrame(id, kind), `Saved frame-${id}.${kind}`)) }, FILES[kind]);
const named = (items) => items.length > 0 && [h("ul", {}, ...items.map((item) => h("li", {}, theirs(item))))];
const event = ({ at, author, verb, status }) =>
  h("li", {}, `${moment(at)} · `, theirs(author), ` · ${verb}${status ? ` → ${STATUSES[status] ?? status}` : ""}`);

function buttons(frame, may) {
  const deeds = {
    push: ["Push", () => now(frame.id, "push", {}, started)],
    push_below: ["Push a goal…", () => pushBelow(frame)],
    plan: ["Plan…", () => plan(frame)],
    pop: ["Pop…", () => pop(frame)],
    current: ["Make current", () => now(frame.id, "current", {}, madeCurrent)],
    reopen: ["Reopen", () => now(frame.id, "reopen", {}, (done) => `${done.reopened.join(", ")} can be pushed again`)],
    invalidate: ["Invalidate…", () => invalidate(frame)],
    forget: ["Forget…", () => forget(frame)],
  };
  return may
    .filter((name) => name in deeds)
    .map((name) => h("button", { "data-deed": name, onclick: deeds[name][1] }, deeds[name][0]));
}

const started = (done) => `${done.frame} is in progress${done.session ? ` in ${done.session}` : ""}; pass session=${done.frame}`;
const madeCurrent = (done) =>
  done.clients
    ? `${done.current} is current for ${several(done.clients, "client")}`
    : `No client of this tree has a current frame; have one pass session=${done.current}`;

const now = (id, deed, given, words) =>
  attempt([...byId("frame").querySelectorAll("button")], async () => words(await actOnFrame(id, deed, given)));

function fields(...rows) {
  return h("div", { class: "fields" }, ...rows.flatMap(([name, box]) => [h("label", { for: box.id }, name), box]));
}

const box = (id, rows, hint = "") => h("textarea", { id, rows, placeholder: hint });
const pickOne = (id, options) => h("select", { id }, ...options.map(([value, label]) => h("option", { value }, label)));
const items = (area) => area.value.split("\n").map((line) => line.trim()).filter(Boolean);

function pushBelow(frame) {
  const goal = box("push-goal", 3, "The goal to achieve");
  const fork = pickOne("push-fork", [["fork", "a fork, with all variables"], ["here", "the parent frame's session"]]);
  const deed = async () => started(await actOnFrame(frame.id, "push", { goal: goal.value, fork: fork.value === "fork" }));
  ask(`Push a goal below ${frame.id}`, [fields(["Goal", goal], ["It runs in", fork])], [deedButton("Push", deed)]);
}

function plan(frame) {
  const goals = box("plan-goals", 6, "One goal per line;\n  indent a line to put it below the one above");
  const deed = async () => {
    const done = await actOnFrame(frame.id, "plan", { goals: nested(goals.value) });
    return `${done.planned.join(", ")} ${done.planned.length === 1 ? "is" : "are"} planned`;
  };
  ask(`Plan below ${frame.id}`, [fields(["Goals", goals])], [deedButton("Plan", deed)]);
}

/** Parse lines as goals: a line with more indentation is below the one above. */
export function nested(text) {
  const top = [];
  const open = [];
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const depth = line.replaceAll("\t", "    ").search(/\S/);
    while (open.length && open.at(-1).depth >= depth) open.pop();
    const goal = { goal: line.trim(), children: [] };
    (open.at(-1)?.goal.children ?? top).push(goal);
    open.push({ depth, goal });
  }
  return top;
}

function pop(frame) {
  const status = pickOne("pop-status", ["completed", "failed", "blocked"].map((name) => [name, name]));
  const summary = box("pop-summary", 4, "The result; leave empty for an extract of its cells");
  const artifacts = box("pop-artifacts", 2, "One per line");
  const decisions = box("pop-decisions", 2, "One per line");
  const values = box("pop-values", 1, "Names of variables, one per line");
  const children = pickOne("pop-children", [
    ["refuse", "refuse if any is in progress"],
    ["adopt", "move them to the parent frame"],
    ["fail", "fail, too"],
  ]);
  const deed = async () => {
    const lists = { artifacts: items(artifacts), decisions: items(decisions), hand_over: items(values) };
    const done = await actOnFrame(frame.id, "pop", { status: status.value, summary: summary.value, children: children.value, ...lists });
    return `${done.frame} is ${done.status}`;
  };
  const rows = [["Status", status], ["Summary", summary], ["Artifacts", artifacts], ["Decisions", decisions], ["Hand over", values], ["Goals below", children]];
  ask(`Pop ${frame.id}`, [fields(...rows)], [deedButton("Pop", deed)]);
}

function invalidate(frame) {
  const deed = async () => {
    const done = await actOnFrame(frame.id, "invalidate");
    const left = done.running.length ? `; ${done.running.join(", ")} still in progress, pop them` : "";
    return `${done.invalidated.join(", ")}: invalidated${left}`;
  };
  const body = [h("p", {}, "The goal is given up, with everything planned below it. Goals in progress below it continue until they are popped.")];
  ask(`Invalidate ${frame.id}`, body, [deedButton("Invalidate", deed)]);
}

function forget(frame) {
  const deed = async () => {
    const done = await actOnFrame(frame.id, "forget");
    location.hash = "#/f";
    return `${several(done.forgotten.length, "frame is", "frames are")} forgotten`;
  };
  const body = [h("p", {}, "This deletes the frame and all frames below it, with their summaries, logs, notebooks and handed-over values. It cannot be undone.")];
  ask(`Forget ${frame.id}`, body, [deedButton("Forget", deed)]);
}
