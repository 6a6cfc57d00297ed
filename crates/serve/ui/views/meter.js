/** How much of a model's context a conversation takes. */

import { h } from "../dom.js";

const SVG = "http://www.w3.org/2000/svg";
/** Shares from which the meter warns. */
const NEARLY_FULL = 0.75;
const FULL = 0.92;

/** A count in few characters. @param {number} count */
function short(count) {
  if (count < 1000) return String(count);
  const [value, unit] = count < 999_500 ? [count / 1000, "k"] : [count / 1e6, "M"];
  return `${value < 9.95 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)}${unit}`;
}

export class ContextMeter {
  constructor() {
    this.text = h("span", {});
    this.ring = document.createElementNS(SVG, "circle");
    this.element = h("span", { class: "context", role: "meter", "aria-label": "Context", "aria-valuemin": "0", hidden: true }, this.drawing(), this.text);
  }

  drawing() {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 20 20");
    svg.setAttribute("aria-hidden", "true");
    for (const circle of [document.createElementNS(SVG, "circle"), this.ring]) {
      for (const [name, value] of Object.entries({ cx: 10, cy: 10, r: 7.5, pathLength: 100 })) circle.setAttribute(name, String(value));
      svg.append(circle);
    }
    return svg;
  }

  /** @param {number} used Tokens. @param {number} limit @param {boolean} [isExact] */
  set(used, limit, isExact = true) {
    this.element.hidden = !limit;
    if (!limit) return;
    const share = Math.min(1, used / limit);
    const words = `${isExact ? "" : "about "}${used.toLocaleString("en")} of ${limit.toLocaleString("en")} tokens, ${Math.round((used / limit) * 100)} %`;
    this.element.className = `context ${share >= FULL ? "full" : share >= NEARLY_FULL ? "nearly-full" : ""}`.trim();
    this.element.title = `Context: ${words}${share >= FULL ? ". Older messages soon have no room: start a new chat, or use a model with a longer context." : ""}`;
    this.element.setAttribute("aria-valuemax", String(limit));
    this.element.setAttribute("aria-valuenow", String(Math.min(used, limit)));
    this.element.setAttribute("aria-valuetext", words);
    this.ring.setAttribute("stroke-dasharray", `${share * 100} 100`);
    this.text.textContent = `${short(used)} / ${short(limit)}`;
  }
}
