/** The page: its parts, the route in the address, and the keys that work everywhere. */

import { Announcer } from "./announcer.js";
import { onKeyNeeded } from "./api.js";
import { conversations } from "./conversations.js";
import { askForKey, showHelp, toast } from "./feedback.js";
import { applyTheme, preference } from "./preferences.js";
import { ChatView } from "./views/chat.js";
import { EmbeddingsView } from "./views/embeddings.js";
import { ServerView } from "./views/server.js";
import { Sidebar } from "./views/sidebar.js";
import { TokenizerView } from "./views/tokenizer.js";

/** How often the list of models is asked for. */
const REFRESH = 30_000;

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const sidebar = new Sidebar(/** @type {HTMLElement} */ (document.getElementById("sidebar")));
const page = {
  announcer: new Announcer(/** @type {Element} */ (document.getElementById("live"))),
  openSidebar: () => sidebar.open(),
};
const chat = new ChatView(page);
const tools = {
  embeddings: new EmbeddingsView(page),
  tokenizer: new TokenizerView(page),
  server: new ServerView(page),
};

/** Shows what the address names: `#/`, `#/c/ID` or `#/TOOL`. */
async function route() {
  const path = location.hash.replace(/^#\/?/, "");
  for (const [name, view] of Object.entries(tools)) if (name !== path) view.leave();
  sidebar.select(path);
  if (path in tools) {
    const view = tools[/** @type {keyof typeof tools} */ (path)];
    main.replaceChildren(view.element);
    view.enter();
    return;
  }
  const id = /^c\/(\w+)$/.exec(path)?.[1] ?? null;
  if (!main.contains(chat.element)) main.replaceChildren(chat.element);
  if (id !== null && id === chat.conversation?.id) return;
  await chat.open(id);
  if (!matchMedia("(pointer: coarse)").matches) chat.composer.field.focus();
}

/** @param {KeyboardEvent} event */
function key(event) {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const control = event.ctrlKey || event.metaKey;
  const name = event.key.toLowerCase();
  const target = /** @type {HTMLElement} */ (event.target);
  const typing = target.matches("input, textarea, select, [contenteditable]");
  if (event.key === "Escape") {
    if (document.body.classList.contains("sidebar-open")) sidebar.close();
    else if (chat.stop()) return;
    else if (!chat.settings.element.hidden && chat.settings.element.contains(target)) chat.toggleSettings(false);
  } else if (control && event.shiftKey && name === "o") {
    location.hash = "#/";
    chat.composer.field.focus();
  } else if (control && !event.shiftKey && name === "k") sidebar.open();
  else if (control || event.altKey || typing) return;
  else if (event.key === "?") showHelp();
  else if (!main.contains(chat.element) || !chat.key(event)) return;
  event.preventDefault();
}

async function start() {
  const theme = preference("theme", "system");
  applyTheme(theme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(preference("theme", "system")));
  onKeyNeeded(askForKey);
  conversations.addEventListener("failure", (event) => toast(/** @type {CustomEvent} */ (event).detail, { error: true }));
  document.addEventListener("keydown", key);
  window.addEventListener("hashchange", route);
  try {
    await conversations.load();
  } catch (error) {
    toast(`Chats cannot be loaded from this browser: ${error instanceof Error ? error.message : error}`, { error: true });
  }
  await route();
  await chat.loadModels();
  setInterval(() => document.visibilityState === "visible" && chat.loadModels(), REFRESH);
  document.documentElement.dataset.ready = "";
}

start();
