// The page: the chosen view or session, its data, and the state of the connection.

import { byId, h, markCurrent, show, write } from "./dom.js";
import { Feed, takeToken } from "./feed.js";
import { choose, learnFrames } from "./frames.js";
import { showLock } from "./lock.js";
import { learnRuns, showRuns } from "./runs.js";
import { renderOverview } from "./overview.js";
import { clearSession, renderSession } from "./session.js";
import { learnWork, showWork } from "./work.js";
import { moment } from "./words.js";

const TITLES = { home: "", session: "", frames: "Frames", runs: "Runs", work: "Work", lock: "Projects" };
const PLACES = Object.keys(TITLES);

let chosen = null;
let place = "home"; // or session, frames, runs, work, lock
let at = ""; // the run that is open
let parts = {};
let lastHeard = null;

const feed = new Feed(learn, tell);

function learn(news) {
  lastHeard = Date.now() / 1000;
  Object.assign(parts, news);
  document.body.dataset.known = "";
  if ("tree" in news) learnFrames(news.tree);
  if ("runs" in news) learnRuns(news.runs);
  if ("work" in news) learnWork(news.work);
  renderOverview(parts, chosen);
  const there = chosen !== null && parts.missing === false;
  if (there) renderSession(parts, news);
  show(byId("home"), place === "home");
  show(byId("session"), there);
  message(chosen !== null && parts.missing === true ? missing() : null);
}

function tell(link) {
  const words = {
    live: "Live",
    away: lastHeard === null ? "The daemon is not answering" : `No answer since ${moment(lastHeard)}`,
    locked: "Locked",
  };
  byId("link").dataset.state = link;
  write(byId("link"), words[link]);
  document.body.classList.toggle("stale", link === "away");
  if (link === "locked") lock();
  else if (link === "away" && lastHeard === null) message(unreachable());
}

function message(content) {
  byId("message").replaceChildren(...(content ?? []));
  show(byId("message"), content !== null);
}

const missing = () => [
  h("h1", {}, "There is no such session"),
  h("p", {}, "No session is named ", h("code", {}, chosen), ". It may have been opened under another name."),
  h("p", {}, h("a", { href: "#/" }, "See all sessions")),
];

const unreachable = () => [
  h("h1", {}, "The daemon is not answering"),
  h("p", {}, "The page tries again every few seconds. If the daemon has ended, start the page again:"),
  h("p", {}, h("code", {}, "rlm-kernel web")),
];

function lock() {
  parts = {};
  delete document.body.dataset.known;
  for (const id of [...PLACES, "run"]) show(byId(id), false);
  document.body.classList.add("locked");
  message([
    h("h1", {}, "This page needs its key"),
    h("p", {}, "Only someone who can run this command can see the sessions. Open the address that it prints:"),
    h("p", {}, h("code", {}, "rlm-kernel web")),
  ]);
}

function route() {
  const renewed = takeToken();
  if (!renewed && location.hash && !location.hash.startsWith("#/")) return; // a link within the page
  const session = /^#\/s\/(.+)$/.exec(location.hash);
  const frame = /^#\/f(?:\/(f\d+))?$/.exec(location.hash);
  const run = /^#\/r(?:\/(\d+)\/(\d+))?$/.exec(location.hash);
  const work = /^#\/w(?:\/(graph|conflicts))?$/.exec(location.hash);
  const project = /^#\/p(?:\/(map|changes))?$/.exec(location.hash);
  const before = chosen;
  const wasIn = place;
  chosen = session === null ? null : decodeURIComponent(session[1]);
  const places = { session, frames: frame, runs: run, work, lock: project };
  place = Object.keys(places).find((name) => places[name] !== null) ?? "home";
  const wasAt = at;
  at = run?.[1] ? `${run[1]}/${run[2]}` : "";
  choose(frame?.[1] ?? null, place === "frames");
  showWork(work?.[1] ?? "board", place === "work");
  showLock(project?.[1] ?? "structure", place === "lock");
  const moved = before !== chosen || wasIn !== place || wasAt !== at;
  if (!moved && lastHeard !== null && !renewed) return;
  document.body.classList.remove("locked");
  document.body.classList.toggle("chosen", place !== "home");
  document.title = [chosen ?? TITLES[place], "rlm-kernel"].filter(Boolean).join(" · ");
  const { sessions, resting, past, asked, frames } = parts;
  parts = { sessions, resting, past, asked, frames };
  clearSession(chosen);
  message(null);
  for (const id of PLACES) show(byId(id), place === id);
  for (const link of document.querySelectorAll(".ways-in a")) markCurrent(link, link.id === `${place}-link`);
  showRuns(at ? { key: Number(run[1]), number: Number(run[2]) } : null, place === "runs");
  if (place !== "runs") show(byId("run"), false);
  if (parts.sessions !== undefined) renderOverview(parts, chosen);
  if (moved && lastHeard !== null) {
    byId("main").focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  feed.start(chosen, place === "work");
}

window.addEventListener("hashchange", route);
route();
