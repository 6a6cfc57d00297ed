/** The frame of a view beside the chat. */

import { h, iconButton } from "../dom.js";

export class ToolView {
  /** @param {{ openSidebar: () => void }} page @param {string} title @param {string} about */
  constructor(page, title, about) {
    this.title = title;
    this.content = h("div", { class: "tool-content" }, h("p", { class: "muted about" }, about));
    this.element = h("section", { class: "tool-view", "aria-label": title },
      h("header", { class: "head" }, iconButton("menu", "Chats", page.openSidebar, { class: "narrow-only" }), h("h1", { class: "title" }, title)),
      h("div", { class: "scroller", tabIndex: -1 }, this.content));
  }

  /** The view is shown. */
  enter() {
    document.title = `${this.title} – Perihelion`;
  }

  /** The view is not shown any more. */
  leave() {}
}
