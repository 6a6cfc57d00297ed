/** Renders Markdown to DOM nodes, also while it grows: blocks that are complete are never parsed again. */

import { h } from "../dom.js";
import { copy } from "../text.js";
import { parseBlocks } from "./blocks.js";
import { renderFormula } from "./formula.js";
import { highlight } from "./highlight.js";
import { renderInline } from "./inline.js";
import { plain } from "./plain.js";

/** @typedef {import("./blocks.js").Block} Block */

/** Tables with more cells are shown in part. */
const MAX_CELLS = 20_000;

/**
 * @param {Block} block
 * @param {boolean} [growing] Whether more of the block may come.
 * @returns {HTMLElement}
 */
function render(block, growing = false) {
  switch (block.type) {
    case "heading":
      // The page has a heading of its own for each message.
      return h(`h${Math.min(6, (block.level ?? 1) + 2)}`, { dir: "auto", class: `h${block.level}` }, renderInline(block.text ?? ""));
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", { dir: "auto" }, (block.children ?? []).map((child) => render(child, growing)));
    case "code":
      if (block.language === "math" && !block.open && block.text) return h("div", {}, renderFormula(block.text, true));
      return codeBlock(block, growing);
    case "list":
      return list(block, growing);
    case "table":
      return table(block);
    case "formula":
      // As in print, a sentence ends behind its formula.
      return h("div", {}, renderFormula(`${block.text?.trim()}${block.after}`, true, block.source));
    default:
      // A formula is its source until it ends.
      if (block.open) return h("p", { dir: "auto", class: "formula-source" }, plain(block.text ?? ""));
      return h("p", { dir: "auto" }, renderInline(block.text ?? ""));
  }
}

/** @param {Pick<Block, "text" | "language" | "open">} block @param {boolean} growing */
export function codeBlock({ text = "", language = "", open }, growing) {
  const code = h("code", { dir: "ltr" }, growing && open ? plain(text) : highlight(text, language));
  const button = h("button", { type: "button", class: "copy-code", "aria-label": "Copy code" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text)) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return h("div", { class: "code-block" },
    h("div", { class: "code-head" }, h("span", {}, plain(language.slice(0, 40) || "text")), button),
    h("pre", { tabIndex: 0, role: "region", "aria-label": language ? `Code in ${language.slice(0, 40)}` : "Code" }, code));
}

/** @param {Block} block @param {boolean} growing @returns {HTMLElement} */
function list({ items = [], first, loose }, growing) {
  const rows = items.map(({ children, checked }) => {
    const row = h("li", { dir: "auto" });
    if (checked !== undefined) {
      row.className = "task";
      row.append(h("input", { type: "checkbox", checked, disabled: true, "aria-label": checked ? "Done" : "To do" }), " ");
    }
    for (const child of children) {
      if (child.type === "paragraph" && !loose) row.append(renderInline(child.text ?? ""));
      else row.append(render(child, growing));
    }
    return row;
  });
  if (first === undefined) return h("ul", {}, rows);
  return h("ol", first === 1 ? {} : { start: first }, rows);
}

/** @param {Block} block */
function table({ rows = [], alignments = [] }) {
  const [head, ...body] = rows;
  const shown = body.slice(0, Math.ceil(MAX_CELLS / Math.max(1, head.length)));
  /** @param {string[]} cells @param {"th" | "td"} name */
  const row = (cells, name) => h("tr", {}, cells.map((cell, index) =>
    h(name, { dir: "auto", class: alignments[index] && `align-${alignments[index]}`, ...(name === "th" ? { scope: "col" } : {}) }, renderInline(cell))));
  return h("div", { class: "table", tabIndex: 0, role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row(head, "th")), h("tbody", {}, shown.map((cells) => row(cells, "td")))));
}

/** An element that shows a text which may grow. */
export class Markdown {
  constructor() {
    this.element = h("div", { class: "markdown" });
    this.text = "";
    /** Where the first block begins that may still change. */
    this.stable = 0;
    /** @type {HTMLElement[]} */
    this.tail = [];
    this.parsedAt = 0;
    this.pause = 0;
  }

  clear() {
    this.element.replaceChildren();
    this.text = "";
    this.stable = 0;
    this.tail = [];
    this.pause = 0;
  }

  /**
   * Shows a text. If it begins with the last one, only its last blocks are parsed.
   *
   * @param {string} text
   * @param {boolean} [growing]
   */
  update(text, growing = false) {
    if (!text.startsWith(this.text)) this.clear();
    const now = performance.now();
    // A very long last block is parsed less often, so that frames stay short.
    if (growing && now - this.parsedAt < this.pause) return;
    this.text = text;
    const blocks = parseBlocks(text, this.stable);
    const firstOpen = this.firstOpen(blocks);
    for (const element of this.tail) element.remove();
    this.tail = [];
    for (const [index, block] of blocks.entries()) {
      const element = render(block, growing && index >= firstOpen);
      element.classList.add("block");
      this.element.append(element);
      if (index >= firstOpen) this.tail.push(element);
    }
    this.stable = firstOpen < blocks.length ? blocks[firstOpen].start : text.length;
    this.parsedAt = now;
    this.pause = Math.max((performance.now() - now) * 6, (text.length - this.stable) / 100);
  }

  /**
   * The first block that more text may change: the last one, and the one before if the last is a single line that has
   * not ended, which may yet turn out to underline a heading; or a formula that has not ended.
   *
   * @param {Block[]} blocks
   */
  firstOpen(blocks) {
    const last = blocks[blocks.length - 1];
    if (!last) return 0;
    const unclosed = blocks.findIndex(({ type, open }) => type === "paragraph" && open);
    const ended = this.text.indexOf("\n", last.start) >= 0;
    return Math.max(0, Math.min(blocks.length - (ended ? 1 : 2), unclosed < 0 ? Infinity : unclosed));
  }
}
