// Numbers and times in words.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || count >= 100 ? 0 : 1;
  return `${count.toFixed(digits)} ${UNITS[unit]}`;
}

/** A time as shown on the page: local, 24 hours, with the date unless it is today. */
export function moment(seconds) {
  const time = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
  if (time.toDateString() === new Date().toDateString()) return clock;
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock}`;
}

export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export const tokens = (count) => count.toLocaleString("en");

export const dollars = (amount) => (amount === 0 ? "$0" : `$${amount < 0.1 ? amount.toPrecision(2) : amount.toFixed(2)}`);

export const several = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** The author of a cell. */
export const AUTHORS = { agent: "an agent", notebook: "a notebook", terminal: "a terminal", trusted: "a trusted notebook" };

export const firstLine = (text) => text.split("\n").find((line) => line.trim()) ?? "";

/** Quote a word for a shell. */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
