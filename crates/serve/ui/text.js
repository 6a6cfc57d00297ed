/** Numbers, times and names in words. */

/** @param {number} count @param {string} noun */
export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const [value, unit] = bytes < 1024 ** 2 ? [bytes / 1024, "KiB"]
    : bytes < 1024 ** 3 ? [bytes / 1024 ** 2, "MiB"] : [bytes / 1024 ** 3, "GiB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** @param {number} milliseconds */
export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}

/** @param {number} value */
export function rate(value) {
  return `${value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en")} tok/s`;
}

/** Making a format takes much longer than using it. */
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric" });

/**
 * The heading under which a conversation is listed.
 *
 * @param {number} time
 */
export function day(time) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return "Today";
  if (time >= today - 86_400_000) return "Yesterday";
  if (time >= today - 7 * 86_400_000) return "Last 7 days";
  return MONTH.format(time);
}

/**
 * The first line of a text, short enough for a title.
 *
 * @param {string} text
 */
export function title(text) {
  const line = text.trim().split("\n", 1)[0].slice(0, 200).replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line || "New chat";
}

/** An id that no other tab makes. `crypto.randomUUID` exists only on HTTPS and localhost. */
export function uniqueId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A seed that every server can take. */
export function randomSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

/** @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Copies a text. Without HTTPS there is no clipboard object, but a selection can still be copied.
 *
 * @param {string} text
 * @returns {Promise<boolean>}
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "visually-hidden";
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}

/**
 * Hands a file to the browser's downloads.
 *
 * @param {string} name
 * @param {string} type
 * @param {string} text
 */
export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
