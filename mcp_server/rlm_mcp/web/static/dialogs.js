// Confirmation dialogs, and messages about results.

import { byId, h, theirs } from "./dom.js";
import { act, saveSession } from "./feed.js";
import { firstLine, quoted, several } from "./words.js";

let fading;

/** Show a message, for screen readers too. */
export function say(text, bad = false) {
  const said = byId("said");
  said.textContent = text;
  said.classList.toggle("bad", bad);
  said.dataset.shown = "";
  clearTimeout(fading);
  fading = setTimeout(() => delete said.dataset.shown, bad ? 12_000 : 5_000);
}

/** Run an action with its buttons disabled, and show its result or error. */
export async function attempt(buttons, deed) {
  for (const button of buttons) button.disabled = true;
  try {
    const words = await deed();
    if (words) say(words);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

export function ask(title, body, buttons) {
  const dialog = byId("ask");
  byId("ask-title").textContent = title;
  byId("ask-body").replaceChildren(...body);
  byId("ask-buttons").replaceChildren(...buttons, h("button", { onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

export function deedButton(label, deed) {
  const button = h("button", { class: "main" }, label);
  button.addEventListener("click", async () => {
    if (await attempt([button], deed)) byId("ask").close();
  });
  return button;
}

export function interrupt(session, button) {
  return attempt([button], async () => {
    const { interrupted } = await act(session, "interrupt");
    return interrupted.length ? "Interrupted; variables are as the cell left them" : "Nothing was running";
  });
}

export function rollBack(session, possible, latest) {
  const count = h("select", { id: "count" }, ...possible.map((cells) => h("option", { value: cells }, String(cells))));
  const list = h("ol", { class: "undone" });
  const fill = () =>
    list.replaceChildren(...latest.slice(0, count.value).map((code) => theirs(firstLine(code), "li", { class: "their" })));
  count.addEventListener("change", fill);
  fill();
  const body = [
    h("p", {}, h("label", { for: "count" }, "Cells to undo "), count),
    list,
    h("p", { class: "quiet" }, "Variables return to their values before these cells. Files and loaded texts do not change."),
  ];
  const deed = async () => {
    const done = await act(session, "rollback", { cells: Number(count.value) });
    return `${several(done.undone.length, "cell is", "cells are")} undone`;
  };
  ask("Roll back", body, [deedButton("Undo", deed)]);
}

export function fork(session, policy) {
  const name = h("input", { id: "fork-name", maxlength: 128, autocomplete: "off", spellcheck: "false" });
  const deed = async () => {
    const made = await act(session, "fork", { name: name.value.trim() || null });
    location.hash = `#/s/${encodeURIComponent(made.session)}`;
    return `${made.session} starts with a copy of every variable of ${session}`;
  };
  const button = deedButton("Fork", deed);
  name.addEventListener("keydown", (event) => event.key === "Enter" && button.click());
  const body = [
    h("p", {}, "A new session that starts with a copy of every variable of this one, under the same policy ", h("b", {}, policy), "."),
    h("p", {}, h("label", { for: "fork-name" }, "Name"), name, h("span", { class: "hint" }, "leave empty to generate a name")),
  ];
  ask("Fork the session", body, [button]);
}

export function open(session, connection) {
  const ways = [["In JupyterLab", `rlm-kernel open ${quoted(session)}`]];
  if (connection) ways.push(["In a terminal", `jupyter console --existing ${quoted(connection)}`]);
  ways.push(["Its journal", `rlm-kernel journal ${quoted(session)}`]);
  const body = [
    h("p", {}, "JupyterLab and other front ends list it as ", h("b", {}, "RLM: ", theirs(session)), "."),
    h("p", { class: "quiet" }, "A web page cannot start programs, so run one of these in a terminal:"),
    h("dl", { class: "ways" }, ...ways.flatMap(([name, command]) => [h("dt", {}, name), h("dd", {}, ...copied(command))])),
  ];
  ask("Open the session", body, []);
}

function copied(command) {
  const button = h("button", { "aria-label": `Copy ${command}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      say("Copied");
    } catch {
      say("The browser does not allow this page to copy; select the text", true);
    }
  });
  return [h("code", {}, command), button];
}

export function save(session) {
  const way = (label, kind) => deedButton(label, async () => {
    await saveSession(session, kind);
    return `${session}.${kind} is saved`;
  });
  const body = [
    h("p", {}, "Everything that ran here, with output, times and the policy. ", h("code", {}, "rlm-kernel replay"), " can rerun the notebook."),
  ];
  ask("Export the session", body, [way("Notebook", "ipynb"), way("Markdown", "md")]);
}
