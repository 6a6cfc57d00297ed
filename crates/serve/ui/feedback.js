/** Short notes at the edge of the page, and dialogs. */

import { fill, h, iconButton } from "./dom.js";

/**
 * Shows a note for some seconds, with an action that undoes what it is about.
 *
 * @param {string} text
 * @param {{ action?: string, run?: () => unknown, error?: boolean }} [options]
 */
export function toast(text, { action, run, error } = {}) {
  const note = h("div", { class: error ? "toast error" : "toast" }, h("span", {}, text));
  const leave = () => note.remove();
  if (action && run) {
    note.append(h("button", { type: "button", class: "link", onclick: () => { leave(); run(); } }, action));
  }
  note.append(iconButton("close", "Dismiss", leave));
  const toasts = /** @type {Element} */ (document.getElementById("toasts"));
  while (toasts.childElementCount > 2) toasts.firstElementChild?.remove();
  toasts.append(note);
  setTimeout(leave, error || action ? 10_000 : 4000);
}

/**
 * Opens a dialog, and resolves once it is closed. The browser keeps the focus inside and gives it back.
 *
 * @param {string} title
 * @param {Node[]} content
 * @param {{ wide?: boolean }} [options]
 * @returns {{ dialog: HTMLDialogElement, closed: Promise<string> }}
 */
export function openDialog(title, content, { wide } = {}) {
  const heading = h("h2", { id: `dialog-title-${++dialogs}` }, title);
  const dialog = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": heading.id });
  fill(dialog, h("header", {}, heading, iconButton("close", "Close", () => dialog.close(""))), ...content);
  dialog.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    if (event.target === dialog) dialog.close("");
  });
  document.body.append(dialog);
  const closed = new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(dialog.returnValue);
  }));
  dialog.showModal();
  return { dialog, closed };
}

let dialogs = 0;

/** Asks for the API key. @returns {Promise<{ key: string, remember: boolean } | null>} */
export async function askForKey() {
  const key = h("input", { type: "password", id: "api-key", autocomplete: "off", required: true, spellcheck: false });
  const remember = h("input", { type: "checkbox", id: "remember-key" });
  const form = h("form", { method: "dialog" },
    h("p", {}, "This server needs an API key. It is kept until this page is closed."),
    h("label", { class: "field", for: "api-key" }, "API key", key),
    h("label", { class: "check", for: "remember-key" }, remember, "Remember it in this browser"),
    h("footer", {}, h("button", { type: "submit", value: "ok", class: "primary" }, "Use this key")));
  const { closed } = openDialog("API key", [form]);
  key.focus();
  return (await closed) === "ok" && key.value ? { key: key.value.trim(), remember: remember.checked } : null;
}

/** The shortcuts, in the order of the help. */
const SHORTCUTS = [
  ["Enter", "Send the message"],
  ["Shift+Enter", "New line"],
  ["Esc", "Stop the answer; close a panel"],
  ["Ctrl+Shift+O", "New chat"],
  ["Ctrl+K", "Search chats"],
  ["/", "Write a message"],
  [",", "Show or hide settings"],
  ["R", "Regenerate the last answer"],
  ["C", "Continue the last answer"],
  ["E", "Edit your last message"],
  ["T", "Show the tokens of the last answer"],
  ["J / K", "Next or previous message"],
  ["[ / ]", "Previous or next branch of the focused message"],
  ["?", "This list"],
];

export function showHelp() {
  const rows = SHORTCUTS.map(([keys, text]) => h("tr", {},
    h("th", { scope: "row" }, keys.split(" / ").flatMap((key, index) => [index ? " / " : "", h("kbd", {}, key)])), h("td", {}, text)));
  openDialog("Keyboard", [
    h("table", { class: "shortcuts" }, h("tbody", {}, rows)),
    h("p", { class: "muted" }, "Keys without Ctrl work when no text field has the focus. Chats are saved in this browser only."),
  ]);
}
