// rlm-kernel's hooks for OpenCode, printed by: rlm-kernel config opencode --hooks
// It tells the daemon what is edited and run, and refuses a write that the daemon refuses. When no daemon answers
// within 25 ms, the agent goes on; what happened goes to a file that the next daemon reads. It never starts a daemon.
import { appendFileSync, readFileSync, realpathSync, statSync } from "node:fs"
import { createConnection } from "node:net"
import { dirname, join, resolve } from "node:path"

const FOLDER = "@FOLDER@"
const ANSWER_MS = 25
const LARGEST_SPOOL = 16 * 1024 * 1024
const LONGEST = 32000

const short = (value) =>
  typeof value === "string" && value.length > LONGEST
    ? value.slice(0, LONGEST / 2) + "\n…\n" + value.slice(-LONGEST / 2)
    : value

const started = () => {
  try {
    return Number(readFileSync("/proc/self/stat", "latin1").split(") ").pop().split(" ")[19])
  } catch {
    return 0
  }
}
const ANCESTORS = [{ pid: process.pid, started: started() }]
let count = 0

const request = (event, given) =>
  JSON.stringify({
    client: "opencode",
    event,
    given: JSON.stringify(given, (_, value) => short(value)) ?? "",
    at: Date.now() / 1000,
    id: `${process.pid}-${Date.now()}-${count++}`,
    ancestors: ANCESTORS,
  })

const ask = (body) =>
  new Promise((done) => {
    const data = Buffer.from(body)
    let answer = ""
    const line = createConnection(join(FOLDER, "daemon"))
    const end = (told) => {
      clearTimeout(limit)
      line.destroy()
      done(told)
    }
    const limit = setTimeout(() => end(null), ANSWER_MS)
    line.on("error", () => end(null))
    line.on("close", () => end(null))
    line.on("data", (chunk) => {
      answer += chunk
      if (!answer.includes("\n")) return
      try {
        end(JSON.parse(answer.split("\n")[0]).reply?.output ?? null)
      } catch {
        end(null)
      }
    })
    line.write(JSON.stringify({ rlm: 1, role: "hook", pid: process.pid, bytes: data.length }) + "\n")
    line.write(data)
  })

const spool = (body) => {
  try {
    const path = join(FOLDER, "spool")
    const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
    if (size < LARGEST_SPOOL) appendFileSync(path, "\n" + body + "\n", { mode: 0o600 })
  } catch {}
}

const tell = async (event, given) => {
  try {
    const body = request(event, given)
    if ((await ask(body)) === null) spool(body)
  } catch {}
}

// The folder that all worktrees of a repository share, else the directory itself: as the daemon finds it.
const tree = (directory) => {
  for (let place = realpathSync(directory); ; place = dirname(place)) {
    const git = join(place, ".git")
    const found = statSync(git, { throwIfNoEntry: false })
    if (found?.isDirectory()) return realpathSync(git)
    if (found) {
      const said = readFileSync(git, "utf8").trim()
      if (said.startsWith("gitdir:")) {
        const own = resolve(place, said.slice(7).trim())
        try {
          return realpathSync(resolve(own, readFileSync(join(own, "commondir"), "utf8").trim()))
        } catch {
          return realpathSync(own)
        }
      }
    }
    if (place === dirname(place)) return realpathSync(directory)
  }
}

const prime = (directory) => {
  try {
    return JSON.parse(readFileSync(join(FOLDER, "prime", tree(directory), "prime.json"), "utf8"))
  } catch {
    return ""
  }
}

export const RlmKernel = async ({ directory }) => {
  const parents = new Map()
  const from = (input) => ({
    sessionID: input.sessionID,
    agentID: parents.has(input.sessionID) ? input.sessionID : "",
    cwd: directory,
  })
  return {
    event: async ({ event }) => {
      const given = event.properties ?? {}
      if (event.type === "session.created" && given.info?.parentID) parents.set(given.info.id, given.info.parentID)
      if (["session.created", "session.compacted"].includes(event.type)) {
        await tell(event.type, { ...from({ sessionID: given.sessionID ?? given.info?.id }), source: "" })
      }
    },
    "tool.execute.before": async (input, output) => {
      if (!["write", "edit", "patch", "multiedit", "apply_patch"].includes(input.tool)) return
      let refusal = null
      try {
        refusal = await ask(
          request("tool.execute.before", { ...from(input), tool: input.tool, callID: input.callID, args: output.args }),
        )
      } catch {}
      if (refusal) throw new Error(refusal)
    },
    "tool.execute.after": async (input, output) => {
      if (!["write", "edit", "patch", "multiedit", "apply_patch", "bash"].includes(input.tool)) return
      const response = { output: output.output ?? "", exit: output.metadata?.exit }
      await tell("tool.execute.after", { ...from(input), tool: input.tool, args: input.args, tool_response: response })
    },
    "experimental.chat.system.transform": async (input, output) => {
      // At every request, and the same text until something has changed: so it survives a compaction.
      const text = prime(directory)
      if (text) output.system.push(text)
    },
  }
}
