// The locks of projects: structure, key files, changes, and whether the snapshot is up to date.

import { byId, h, keep, markCurrent, show, theirs, write } from "./dom.js";
import { knownProjects, wholeProject } from "./feed.js";
import { moment, several } from "./words.js";

const VIEWS = { structure: "Structure", map: "Map", changes: "Changes" };
const LOOK = 5_000;
const WORDS = { added: "+", modified: "~", removed: "−" };

let view = "structure";
let visible = false;
let root = null; // the project that is shown
let since = 0; // the version that changes are told from; 0: the one before
let asking = 0; // the latest question: an answer to an earlier one comes too late

/** Show one of the views of a project, or nothing. */
export function showLock(wanted, shown) {
  view = wanted;
  const begins = shown && !visible;
  visible = shown;
  byId("lock-link").toggleAttribute("data-current", shown);
  if (shown) drawTabs();
  if (begins) look();
  else if (shown) draw();
}

let known = [];
let found = null;
let problem = "";

async function look() {
  const mine = ++asking;
  try {
    const projects = (await knownProjects()).projects;
    if (mine !== asking) return;
    known = projects;
    if (!known.some((one) => one.root === root)) [root, since, found] = [known[0]?.root ?? null, 0, null];
    const before = since || Math.max(1, (known.find((one) => one.root === root)?.version ?? 1) - 1);
    const told = root === null ? null : await wholeProject(root, before);
    if (mine !== asking) return;
    [found, problem] = [told, ""];
  } catch (error) {
    if (mine !== asking) return;
    problem = error.message;
  }
  draw();
}

setInterval(() => visible && document.visibilityState === "visible" && look(), LOOK);

// --- what is shown ----------------------------------------------------------------------------------

function draw() {
  if (!visible) return;
  drawTabs();
  show(byId("lock-none"), known.length === 0 && problem === "");
  show(byId("lock-problem"), problem !== "");
  write(byId("lock-problem"), problem);
  drawFacts();
  const box = byId("lock-body");
  show(box, found !== null);
  if (found === null) return;
  const stamp = JSON.stringify([view, found]);
  if (box.dataset.stamp === stamp) return; // what somebody has selected in it stays
  box.dataset.stamp = stamp;
  box.replaceChildren(...{ structure, map, changes }[view](found));
}

function drawFacts() {
  if (found === null) return write(byId("lock-facts"), "");
  const facts = [`version ${found.version}`, several(found.files, "file"), `made ${moment(found.created)}`];
  if (found.untracked) facts.push(`${found.untracked} untracked`);
  if (found.phase !== "ready") facts.push(`${found.phase}: ${found.done} of ${found.total} files`);
  write(byId("lock-facts"), facts.join(" · "));
  const told = [...found.missing];
  if (found.is_stale) told.unshift(`Stale. Not included yet: ${found.changed.join(", ") || "the latest changes"}`);
  show(byId("lock-notices"), told.length > 0);
  keep(byId("lock-notices"), told, (one) => one, (one) => theirs(one, "li"));
}

function structure({ sections }) {
  const { project = {}, keyfiles = {}, rules = {} } = sections;
  const counts = Object.entries(project.files?.by_extension ?? {});
  return [
    h("h2", {}, "Files"),
    pairs(counts.map(([ending, count]) => [ending || "without extension", count])),
    h("h2", {}, "Folders ", h("small", {}, project.directories?.count ?? 0)),
    list((project.directories?.paths ?? []).slice(0, 100).map((path) => theirs(path, "span", { class: "their path" }))),
    h("h2", {}, "Dependencies"),
    pairs(["total", "internal", "external"].map((name) => [name, project.dependencies?.[name] ?? 0])),
    h("h2", {}, "Key files"),
    list((keyfiles.files ?? []).map((file) => [theirs(file.path, "span", { class: "their path" }), h("span", { class: "quiet" }, ` ${file.role}`)])),
    h("h2", {}, "Rules"),
    list((rules.rules ?? []).map((rule) => [theirs(rule.id), h("span", { class: "quiet" }, " "), theirs(rule.description)])),
  ];
}

const map = ({ map: text }) => [theirs(text, "pre", { class: "code", tabindex: 0, "aria-label": "Map" })];

function changes({ difference, version }) {
  const from = h("input", { type: "number", min: 1, max: version, value: difference?.before ?? Math.max(1, version - 1), "aria-label": "Since version" });
  from.addEventListener("change", () => ((since = Number(from.value) || 0), look()));
  const rows = (difference?.changes ?? []).map((one) => [
    h("span", { class: "number" }, `${WORDS[one.change]} `),
    theirs(one.path, "span", { class: "their path" }),
    ...(one.added ?? []).map((name) => [" ", theirs(`+${name}`, "code")]).flat(),
    ...(one.removed ?? []).map((name) => [" ", theirs(`−${name}`, "code")]).flat(),
    one.definitions ? h("span", { class: "quiet" }, " definitions unknown") : "",
  ]);
  const says = difference?.before ? `${several(difference.count, "file")} changed up to version ${version}` : "That version is no longer kept.";
  return [h("p", {}, "Since version ", from, ` · ${says}`), list(rows)];
}

const list = (items) => (items.length ? h("ul", { class: "clashes" }, ...items.map((item) => h("li", {}, item))) : h("p", { class: "quiet" }, "None."));
const pairs = (rows) => h("dl", { class: "pairs" }, ...rows.map(([name, value]) => h("div", {}, h("dt", {}, theirs(name)), h("dd", {}, String(value)))));

// --- above it ---------------------------------------------------------------------------------------

const ways = h("div", { class: "tabs", role: "navigation", "aria-label": "Views of the project" });
const projects = h("select", { "aria-label": "Project", onchange: () => (([root, since, found] = [projects.value, 0, null]), look()) });
byId("lock-tools").append(ways, projects);

function drawTabs() {
  const tabs = Object.entries(VIEWS).map(([name, title]) => ({ name, title }));
  keep(ways, tabs, ({ name }) => name, ({ name, title }) => {
    const tab = h("a", { href: name === "structure" ? "#/p" : `#/p/${name}` }, title);
    tab.refresh = () => markCurrent(tab, name === view);
    return tab;
  });
  keep(projects, known, (one) => one.root, (one) => h("option", { value: one.root }, one.root));
  if (root !== null) projects.value = root;
  show(projects, known.length > 0);
}
