/** Builds MathML: the nodes of formulas. */

import { plain } from "./plain.js";

/**
 * @typedef {"term" | "operator" | "open" | "function"} Kind What spacing depends on.
 * @typedef {{ node: Node, kind: Kind, limits?: boolean }} Atom
 * @typedef {{ cells: Node[], line?: boolean, lastLine?: boolean }} Row With lines above and below.
 */

const NAMESPACE = "http://www.w3.org/1998/Math/MathML";
/** Larger tables have ragged rows. */
const MAX_CELLS = 2000;

/**
 * @param {string} name
 * @param {Record<string, string | number | boolean | undefined>} attributes
 * @param {...Node | string} children
 */
export function m(name, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined && value !== "") element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** One node for several. @param {Node[]} nodes */
export function group(nodes) {
  return nodes.length === 1 ? nodes[0] : m("mrow", {}, .../** @type {any[]} */ (nodes));
}

/** A bracket that does not grow. @param {string} text @param {Kind} [kind] @returns {Atom} */
export function bracket(text, kind) {
  const side = kind ?? (/[([{⟨⌊⌈⟦⟮⌜]/.test(text) ? "open" : "term");
  // A bar may open or close, so that nothing is known of the space around it.
  const bare = /[|‖/\\]/.test(text) ? { lspace: 0, rspace: 0 } : {};
  return { node: m("mo", { stretchy: false, ...bare }, text), kind: side };
}

/** A bracket that grows with what it encloses. @param {string} text @param {"prefix" | "postfix"} form */
export function fence(text, form) {
  return m("mo", { fence: true, form, stretchy: true, symmetric: true }, text);
}

/** A number of em with its unit. @param {number} width */
export function space(width) {
  return m("mspace", { width: `${width}em` });
}

/** @param {string} name @returns {Atom} */
export function functionWithLimits(name) {
  return { node: m("mo", { movablelimits: true, lspace: 0, rspace: "0.1667em" }, plain(name)), kind: "operator", limits: true };
}

/** A mark with room at its sides. @param {Node} node */
export function padded(node) {
  return m("mrow", {}, space(0.3), node, space(0.3));
}

/**
 * @param {Row[]} rows
 * @param {string} kind
 * @param {string} [columns] `l`, `c` and `r` of each column, and `|` for lines.
 */
export function table(rows, kind, columns = "") {
  const sides = [...columns.matchAll(/(\|?)([lcr])(\|?)/g)].map(([, before, side, after]) => [{ l: "left", c: "", r: "right" }[side], before && "line-before", after && "line-after"].filter(Boolean).join(" "));
  const display = /aligned|gathered|display/.test(kind);
  const widest = rows.reduce((most, { cells }) => Math.max(most, cells.length), 0);
  return m("mtable", { class: kind, displaystyle: display || undefined }, ...rows.map((row) => {
    /** @type {Node[]} */
    const cells = row.cells.map((cell, index) => m("mtd", { class: sides[index] }, cell));
    // Rows of one cell among wider ones keep the columns.
    while (cells.length < widest && widest * rows.length < MAX_CELLS) cells.push(m("mtd", {}));
    return m("mtr", { class: [row.line && "line-above", row.lastLine && "line-below"].filter(Boolean).join(" ") }, ...cells);
  }));
}
