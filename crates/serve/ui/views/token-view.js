/** The tokens of an answer, coloured by probability, with the alternatives at each place. */

import { fill, h } from "../dom.js";

/**
 * @typedef {import("../tree.js").Token} Token
 * @typedef {{ text: string, logprob: number, bytes?: number[] }} Choice
 */

/** Tokens of which elements are made at once. */
const PAGE = 3000;

/** @param {number} logprob */
function percent(logprob) {
  const value = Math.exp(logprob) * 100;
  return value >= 10 ? `${Math.round(value)} %` : value >= 0.1 ? `${value.toFixed(1)} %` : "< 0.1 %";
}

/** A token's text with its spaces visible. @param {string} text */
function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}

/**
 * The text of tokens, or null if it ends within a character.
 *
 * @param {Choice[]} choices
 */
function textOf(choices) {
  const encoder = new TextEncoder();
  const bytes = choices.flatMap(({ text, bytes }) => bytes ?? [...encoder.encode(text)]);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return null;
  }
}

/**
 * @param {Token[]} tokens
 * @param {(prefix: string, kept: Token[]) => void} take Called with the text up to a chosen alternative, and its tokens.
 * @returns {HTMLElement}
 */
export function tokenView(tokens, take) {
  const details = h("div", { class: "alternatives", "aria-live": "off" }, h("p", { class: "muted" }, "Point at a token to see what else could have stood there."));
  const side = h("div", { class: "token-side" }, details);
  const box = h("div", {
    class: "tokens", role: "listbox", dir: "auto", tabIndex: 0, "aria-label": "Tokens with their probabilities. Arrow keys move, Enter opens the alternatives.",
  });
  let shown = 0;
  let current = -1;

  const show = (/** @type {number} */ index) => {
    if (index < 0 || index >= tokens.length) return;
    while (index >= shown) addPage();
    box.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    current = index;
    const option = box.children[index];
    option.setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
    fill(details, alternatives(tokens, index, take));
    placeBeside(details, /** @type {HTMLElement} */ (option));
  };
  const addPage = () => {
    for (const token of tokens.slice(shown, shown + PAGE)) {
      const bucket = Math.min(9, Math.floor(Math.exp(token.logprob) * 10));
      box.append(h("span", {
        class: `token p${bucket}`, role: "option", id: `token-${prefix}-${shown}`, "data-index": shown, "aria-selected": "false",
        "aria-label": `${token.text.trim() || visible(token.text)}, ${percent(token.logprob)}`,
      }, token.text));
      shown++;
    }
    more.hidden = shown >= tokens.length;
  };
  const prefix = ++views;
  const more = h("button", { type: "button", class: "link", onclick: addPage }, "Show more tokens");
  addPage();

  box.addEventListener("mousemove", (/** @type {MouseEvent} */ event) => {
    // Browsers send events without movement when the page moves under the mouse.
    if (!event.movementX && !event.movementY) return;
    const index = /** @type {HTMLElement} */ (event.target).dataset?.index;
    if (index !== undefined && Number(index) !== current) show(Number(index));
  });
  box.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const index = /** @type {HTMLElement} */ (event.target).dataset?.index;
    if (index !== undefined) show(Number(index));
  });
  box.addEventListener("focus", () => show(Math.max(0, current)));
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (step) show(Math.min(tokens.length - 1, Math.max(0, current + step)));
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(tokens.length - 1);
    else if (event.key === "Enter") details.querySelector("button")?.focus();
    else return;
    event.preventDefault();
  });
  details.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const buttons = [...details.querySelectorAll("button")];
    const index = buttons.indexOf(/** @type {any} */ (document.activeElement));
    if (event.key === "ArrowDown") buttons[index + 1]?.focus();
    else if (event.key === "ArrowUp") buttons[index - 1]?.focus();
    else if (event.key === "Escape") box.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return h("div", { class: "token-view" }, legend(), h("div", { class: "token-columns" }, h("div", { class: "token-text" }, box, more), side));
}

/** Moves the alternatives to the height of their token, where they stand in a column of their own. @param {HTMLElement} details @param {HTMLElement} token */
function placeBeside(details, token) {
  const side = /** @type {HTMLElement} */ (details.parentElement);
  details.style.removeProperty("top");
  if (getComputedStyle(details).position !== "absolute") {
    details.scrollIntoView({ block: "nearest" });
    return;
  }
  const [column, line, view] = [side, token, details.closest(".scroller") ?? side].map((element) => element.getBoundingClientRect());
  // All of it is in sight, as far as the column reaches.
  const wanted = Math.min(Math.max(line.top, view.top + 8), view.bottom - details.offsetHeight - 8) - column.top;
  details.style.setProperty("top", `${Math.max(0, wanted)}px`);
}

let views = 0;

function legend() {
  return h("p", { class: "legend muted" }, "Unlikely ", h("span", { class: "scale", "aria-hidden": "true" },
    [0, 2, 4, 6, 8].map((bucket) => h("span", { class: `p${bucket}` }))), " likely. Probabilities are before temperature and filters.");
}

/**
 * @param {Token[]} tokens
 * @param {number} index
 * @param {(prefix: string, kept: Token[]) => void} take
 */
function alternatives(tokens, index, take) {
  const token = tokens[index];
  const before = tokens.slice(0, index);
  const choices = token.top.some(({ text, logprob }) => text === token.text && logprob === token.logprob)
    ? [...token.top] : [...token.top, token];
  choices.sort((a, b) => b.logprob - a.logprob);
  const rows = choices.map((choice) => {
    const chosen = choice.text === token.text && choice.logprob === token.logprob;
    const text = textOf([...before, choice]);
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--part", String(Math.exp(choice.logprob)));
    return h("li", {}, h("button", {
      type: "button", disabled: chosen || text === null, class: chosen ? "chosen" : "",
      title: chosen ? "The token of this answer" : text === null ? "This token ends within a character" : "Take this token and go on from here",
      onclick: () => text !== null && take(text, [...before, { ...choice, top: token.top }]),
    }, h("span", { class: "alternative" }, visible(choice.text)), h("span", { class: "percent" }, percent(choice.logprob)), bar));
  });
  return [h("p", { class: "muted" }, `Token ${index + 1} of ${tokens.length}`), h("ol", {}, rows)];
}
