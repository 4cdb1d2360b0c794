// One task of the queue: its facts, and the actions on it.

import { ask, deedButton } from "./dialogs.js";
import { byId, h, theirs } from "./dom.js";
import { actOnFrame, actOnTask } from "./feed.js";
import { frameLink } from "./frames.js";
import { moment } from "./words.js";

const PRIORITIES = [[1000, "1000, most urgent"], [750, "750"], [500, "500, normal"], [250, "250, can wait"]];
const TIMES = [[3600, "an hour"], [14_400, "four hours"], [86_400, "a day"]];
const TYPES = { blocks: "waits for", waits_for: "waits for everything below", on_failure: "only if this fails:", found_in: "was found in", supersedes: "supersedes" };

/** Show a task with its buttons. */
export function openTask(task, known) {
  if (task === undefined) return;
  const held = task.state === "in_progress" || task.state === "stale";
  const isTask = task.kind === "task";
  const buttons = [];
  if (isTask && task.state === "ready") buttons.push(next("Claim…", () => claim(task, false)));
  if (isTask && held && task.holder) buttons.push(next("Steal…", () => claim(task, true)), next("Release…", () => release(task)));
  if (["blocked", "failed"].includes(task.state)) buttons.push(unblock(task));
  if (isOpen(task)) buttons.push(next("Priority…", () => prioritise(task)));
  ask(`${words(task.kind)} ${task.id}`, about(task, known), buttons);
}

const words = (kind) => kind[0].toUpperCase() + kind.slice(1);
const isOpen = (task) => !["completed", "failed", "invalidated"].includes(task.state);

/** A button that opens the next dialog. */
const next = (label, then) => h("button", { onclick: () => (byId("ask").close(), then()) }, label);

function about(task, known) {
  const facts = [h("span", { class: "state pill", "data-state": task.state }, task.state.replace("_", " ")), h("span", {}, `priority ${task.priority}`)];
  if (task.holder) facts.push(h("span", {}, theirs(task.holder), task.claimed ? ` since ${moment(task.claimed)}` : ""));
  if (task.attempt > 1) facts.push(h("span", {}, `attempt ${task.attempt}`));
  const above = known.get(task.parent);
  const links = task.links.map((link) =>
    h("li", {}, `${TYPES[link.type]} `, other(known, link.on), link.waits ? "" : ["found_in", "supersedes"].includes(link.type) ? "" : " (done)"));
  const later = [...known.values()].filter((one) => one.links.some((link) => link.on === task.id && link.waits));
  return [
    theirs(task.goal, "p", { class: "their whole" }),
    h("p", { class: "facts" }, ...facts),
    ...(task.reason ? [theirs(task.reason, "p", { class: "their whole notice" })] : []),
    ...(task.ends ? [h("p", {}, "Everything below it has ended. Pop it, as completed or as failed.")] : []),
    ...list("Part of", above ? [h("li", {}, other(known, above.id))] : []),
    ...list("Edges", links),
    ...list("Waiting for it", later.map((one) => h("li", {}, other(known, one.id)))),
    ...list("Writes", task.paths.map((path) => h("li", {}, theirs(path.replace(/^\//, "") || "the whole repository", "span", { class: "their path" })))),
    h("p", {}, h("a", { href: frameLink(task.id), onclick: () => byId("ask").close() }, "All its records, and other actions")),
  ];
}

const list = (title, items) => (items.length ? [h("h3", {}, title), h("ul", { class: "plain-list" }, ...items)] : []);

function other(known, id) {
  const task = known.get(id);
  return h("button", { class: "plain", onclick: () => (byId("ask").close(), openTask(task, known)), disabled: task === undefined }, `${id} ${task?.goal.slice(0, 60) ?? ""}`);
}

const choice = (id, options, value) => {
  const select = h("select", { id }, ...options.map(([key, label]) => h("option", { value: key }, label)));
  if (value !== undefined) select.value = value;
  return select;
};

function claim(task, steal) {
  const time = choice("claim-time", TIMES);
  const why = h("input", { id: "claim-why", maxlength: 500, autocomplete: "off" });
  const deed = async () => {
    const done = await actOnTask(task.id, "claim", { seconds: Number(time.value), ...(steal && { steal: why.value }) });
    return `you have claimed ${done.claimed}, with fence ${done.fence}`;
  };
  const body = [
    h("p", {}, steal ? `${task.holder} holds the claim now. Its later writes will be refused.` : "No one else can claim it in the meantime."),
    h("p", {}, h("label", { for: "claim-time" }, "For"), time),
    ...(steal ? [h("p", {}, h("label", { for: "claim-why" }, "Why"), why)] : []),
    h("p", { class: "quiet" }, "Release it, or pop its frame, when you are done. When the time is over, the claim ends."),
  ];
  ask(`${steal ? "Steal" : "Claim"} ${task.id}`, body, [deedButton(steal ? "Steal" : "Claim", deed)]);
}

function release(task) {
  const body = [h("p", {}, `This takes it from ${task.holder}. The next holder continues the work.`)];
  ask(`Release ${task.id}`, body, [deedButton("Release", async () => `${(await actOnTask(task.id, "release")).released} can be claimed again`)]);
}

function unblock(task) {
  const deed = async () => `${(await actOnFrame(task.id, "reopen")).reopened.join(", ")} can be claimed again`;
  return deedButton(task.state === "blocked" ? "Unblock" : "Reopen", deed);
}

function prioritise(task) {
  const priority = choice("priority", PRIORITIES, String(task.priority));
  const deed = async () => {
    const done = await actOnTask(task.id, "priority", { priority: Number(priority.value) });
    return `${done.changed} has priority ${done.priority}`;
  };
  ask(`Priority of ${task.id}`, [h("p", {}, h("label", { for: "priority" }, "Priority"), priority)], [deedButton("Change", deed)]);
}
