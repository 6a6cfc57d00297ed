/** The list of conversations with its search, and the way to the other views. */

import { conversations } from "../conversations.js";
import { fill, h, icon, iconButton } from "../dom.js";
import { fromJson, toJson } from "../exchange.js";
import { showHelp, toast } from "../feedback.js";
import { applyTheme, preference, setPreference } from "../preferences.js";
import { day, download, messageOf, plural } from "../text.js";

const TOOLS = /** @type {const} */ ([
  ["embeddings", "grid", "Embeddings"],
  ["tokenizer", "text", "Tokenizer"],
  ["server", "pulse", "Server"],
]);

/** Chats that are listed at once, and that follow at a time. */
const FIRST = 80;
const MORE = 300;

const THEMES = /** @type {const} */ (["system", "light", "dark"]);

export class Sidebar {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.current = "";
    /** @type {Set<string> | null} */
    this.found = null;
    /** Chats that are listed; the others follow while the page is idle. */
    this.limit = FIRST;
    /** @type {Map<string, HTMLElement>} */
    this.rows = new Map();
    this.search = h("input", {
      type: "search", id: "search", placeholder: "Search chats", "aria-label": "Search chats", autocomplete: "off",
      oninput: () => this.find(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.searchKey(event),
    });
    this.list = h("div", { class: "chats" });
    this.tools = h("div", { class: "tools" });
    this.theme = h("button", { type: "button", class: "tool", onclick: () => this.nextTheme() });
    fill(element,
      h("div", { class: "brand" }, h("a", { href: "#/", class: "name" }, "Perihelion"), iconButton("close", "Close the list", () => this.close(), { class: "narrow-only" })),
      h("a", { href: "#/", class: "new-chat", id: "new-chat" }, icon("plus"), "New chat"),
      this.search, this.list, this.tools);
    conversations.addEventListener("list", () => this.scheduleShow());
    this.showTools();
    this.nameTheme();
  }

  /** Marks what is open. @param {string} current A route. */
  select(current) {
    this.current = current;
    this.show();
    this.showTools();
    this.close();
  }

  open() {
    document.body.classList.add("sidebar-open");
    this.search.focus();
  }

  close() {
    document.body.classList.remove("sidebar-open");
  }

  scheduleShow() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.show();
    });
  }

  show() {
    const shown = conversations.list().filter(({ id }) => !this.found || this.found.has(id));
    const nodes = [];
    let heading = "";
    let list = null;
    for (const { id, title, changed } of shown.slice(0, this.limit)) {
      const name = day(changed);
      if (name !== heading || !list) {
        heading = name;
        list = h("ul", { "aria-label": heading });
        nodes.push(h("h2", { "aria-hidden": "true" }, heading), list);
      }
      list.append(this.row(id, title));
    }
    if (!shown.length) nodes.push(h("p", { class: "muted no-chats" }, this.found ? "No chat contains this." : "Chats appear here."));
    const focused = /** @type {HTMLElement | null} */ (this.list.contains(document.activeElement) ? document.activeElement : null);
    fill(this.list, nodes);
    focused?.focus();
    if (shown.length > this.limit) {
      this.limit += MORE;
      (window.requestIdleCallback ?? setTimeout)(() => this.scheduleShow());
    }
  }

  /** The row of a chat, which is made once for each title. @param {string} id @param {string} title */
  row(id, title) {
    let row = this.rows.get(id);
    if (row?.dataset.title !== title) {
      row = h("li", { "data-title": title }, h("a", { href: `#/c/${id}`, dir: "auto" }, title),
        iconButton("trash", `Delete the chat ${title}`, () => this.remove(id, title)));
      this.rows.set(id, /** @type {HTMLElement} */ (row));
    }
    const link = /** @type {Element} */ (row?.firstElementChild);
    if (this.current === `c/${id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    return /** @type {HTMLElement} */ (row);
  }

  showTools() {
    const links = TOOLS.map(([route, name, label]) =>
      h("a", { href: `#/${route}`, class: "tool", ...(this.current === route ? { "aria-current": "page" } : {}) }, icon(name), label));
    const more = h("div", { class: "row" },
      h("button", { type: "button", class: "tool", onclick: () => this.exportAll() }, "Export"),
      h("button", { type: "button", class: "tool", onclick: () => this.importFile() }, "Import"),
      this.theme,
      iconButton("help", "Keyboard shortcuts", showHelp));
    fill(this.tools, links, more);
  }

  nextTheme() {
    const theme = THEMES[(THEMES.indexOf(preference("theme", "system")) + 1) % THEMES.length];
    setPreference("theme", theme);
    applyTheme(theme);
    this.nameTheme();
  }

  nameTheme() {
    const theme = preference("theme", "system");
    fill(this.theme, icon("theme"), { system: "Auto", light: "Light", dark: "Dark" }[theme]);
    this.theme.setAttribute("aria-label", `Theme: ${theme}`);
  }

  find() {
    clearTimeout(this.finding);
    this.finding = setTimeout(async () => {
      const text = this.search.value.trim();
      this.found = text ? await conversations.search(text) : null;
      this.show();
    }, 120);
  }

  /** @param {KeyboardEvent} event */
  searchKey(event) {
    if (event.key === "Escape" && this.search.value) {
      event.stopPropagation();
      this.search.value = "";
      this.find();
    } else if (event.key === "ArrowDown") this.list.querySelector("a")?.focus();
  }

  /** @param {string} id @param {string} title */
  async remove(id, title) {
    const undo = await conversations.remove(id);
    if (this.current === `c/${id}`) location.hash = "#/";
    toast(`“${title}” is deleted.`, { action: "Undo", run: undo });
  }

  async exportAll() {
    const all = conversations.list();
    download(`chats-${new Date().toISOString().slice(0, 10)}.json`, "application/json", await toJson(all));
    toast(`${plural(all.length, "chat")} exported.`);
  }

  importFile() {
    const input = h("input", { type: "file", accept: ".json,application/json" });
    input.onchange = async () => {
      try {
        const count = await fromJson(await input.files[0].text());
        toast(`${plural(count, "chat")} imported.`);
      } catch (error) {
        toast(messageOf(error), { error: true });
      }
    };
    input.click();
  }
}
