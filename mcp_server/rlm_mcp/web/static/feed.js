// Updates from the daemon, and requests to it. The token comes in the fragment of the address and stays in this tab.

const KEY = "rlm-token";
const SILENCE = 25_000;
const PAUSE = 1_500;

/** Remove the token from the address, so that it does not stay in the history. */
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given === null) return false;
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", "/");
  return true;
}

const headers = (more = {}) => ({ Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, ...more });

/** Follow the daemon: `onParts` gets changes, `onLink` the state of the connection. */
export class Feed {
  #controller = null;

  constructor(onParts, onLink) {
    this.onParts = onParts;
    this.onLink = onLink;
  }

  /** `session`: the one to follow in full; `work`: follow the queue, too. */
  start(session, work) {
    this.#controller?.abort();
    this.#controller = new AbortController();
    const asked = new URLSearchParams({ ...(session && { session }), ...(work && { work: 1 }) });
    this.#follow(asked.size ? `/api/live?${asked}` : "/api/live", this.#controller.signal);
  }

  async #follow(url, signal) {
    while (!signal.aborted) {
      try {
        const answer = await fetch(url, { headers: headers(), signal });
        if (answer.status === 401) {
          this.onLink("locked");
          return;
        }
        if (!answer.ok) throw new Error(answer.statusText);
        for await (const parts of lines(answer.body)) {
          if (signal.aborted) return;
          this.onLink("live");
          this.onParts(parts);
        }
      } catch {
        // The daemon is gone, asleep or replaced: report it below and try again.
      }
      if (signal.aborted) return;
      this.onLink("away");
      await new Promise((done) => setTimeout(done, PAUSE));
    }
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await inTime(reader.read());
      if (done) return;
      held += value;
      const whole = held.split("\n");
      held = whole.pop();
      for (const line of whole) yield JSON.parse(line);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function inTime(promise) {
  const late = new Promise((_, fail) => setTimeout(fail, SILENCE, new Error("silence")));
  return Promise.race([promise, late]);
}

const address = (session, what) => `/api/sessions/${encodeURIComponent(session)}/${what}`;

/** Perform an action on a session; throws an error with the daemon's message. */
export const act = (session, deed, given = {}) => post(address(session, deed), given);

const addressOfFrame = (frame, what = "") => `/api/frames/${encodeURIComponent(frame)}${what}`;

/** Perform an action on a frame. */
export const actOnFrame = (frame, deed, given = {}) => post(addressOfFrame(frame, `/${deed}`), given);

/** Perform an action on a task of the queue. */
export const actOnTask = (task, deed, given = {}) => post(`/api/work/${encodeURIComponent(task)}/${deed}`, given);

/** Get a complete frame. */
export async function wholeFrame(frame) {
  return got(addressOfFrame(frame));
}

/** List the projects that have a lock. */
export const knownProjects = () => got("/api/projects");

/** Get the current lock of a project, with the changes since a version. */
export const wholeProject = (root, since) => got(`/api/project?${new URLSearchParams({ root, since })}`);

/** Fetch a picture of a cell; returns a local address of it. */
export const picture = async (url) => URL.createObjectURL(await (await read(await reach(url, { headers: headers() }))).blob());

/** The address of a cell of a session. */
export const cellOf = (session, number) => address(session, `cells/${number}`);

/** Get a complete run. */
export const wholeRun = (session, number) => got(`/api/runs/${session}/${number}`);

/** The address of a cell of a run. */
export const cellOfRun = (session, number) => `/api/runs/${session}/cells/${number}`;

/** Delete the runs of a session, and those below them. */
export const forgetRuns = (session) => post(`/api/runs/${session}/forget`, {});

async function got(url) {
  return (await read(await reach(url, { headers: headers() }))).json();
}

async function post(url, given) {
  const body = JSON.stringify(given);
  const more = { "Content-Type": "application/json" };
  const answer = await read(await reach(url, { method: "POST", headers: headers(more), body }));
  return answer.json();
}

/** Save a session as a file. */
export const saveSession = (session, kind) => download(address(session, `export.${kind}`), `${session}.${kind}`);

/** Save the log or the notebook of a frame, or the tree below it. */
export const saveFrame = (frame, kind) => download(addressOfFrame(frame, `/export.${kind}`), `frame-${frame}.${kind}`);

async function download(url, name) {
  const answer = await read(await reach(url, { headers: headers() }));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function reach(url, options) {
  try {
    return await fetch(url, options);
  } catch {
    throw new Error("The daemon is not answering.");
  }
}

async function read(answer) {
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Error([said.message ?? said.error ?? answer.statusText, said.hint].filter(Boolean).join(". "));
}
