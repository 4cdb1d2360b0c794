// A query of code, and the box to answer it manually.

import { h, theirs } from "./dom.js";
import { act } from "./feed.js";
import { attempt } from "./dialogs.js";
import { moment } from "./words.js";

export function makeQuery(query) {
  const name = `${query.session} ${query.id}`;
  const box = h("textarea", { rows: 2, "aria-label": `Answer to ${name}`, placeholder: "Your answer" });
  const buttons = [
    h("button", { class: "main", onclick: () => give({ answer: box.value }) }, "Answer"),
    h("button", { onclick: () => give({ error: box.value || "no one could answer" }) }, "Cannot answer"),
  ];
  const give = (outcome) =>
    attempt(buttons, async () => {
      await act(query.session, "answer", { id: query.id, ...outcome });
      return `${query.id} was answered`;
    });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) buttons[0].click();
  });
  return h(
    "li",
    { class: "query" },
    h("p", { class: "asks" }, h("code", {}, query.id), " in ", theirs(query.session), ` · ${moment(query.asked)}`),
    theirs(query.prompt, "p", { class: "their prompt", tabindex: 0, "aria-label": "Question" }),
    box,
    h("div", { class: "actions" }, ...buttons, h("span", { class: "hint" }, "Ctrl+Enter answers")),
  );
}
