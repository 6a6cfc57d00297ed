/** Formulas in text: where they are, and how they are shown. */

import { m } from "./mathml.js";
import { plain } from "./plain.js";
import { FormulaError, FormulaParser } from "./tex.js";

/** Longer formulas are shown as their source. */
const MAX_LENGTH = 6000;

/** Whether the characters at a position end a formula. @param {string} text @param {string} end @param {number} at */
export function closesFormula(text, end, at) {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === "\\") backslashes++;
  if (backslashes % 2) return false;
  if (end !== "$") return true;
  // “$5 and $6” and “$A:$B” are no formulas; “the $n$th” is one.
  return !/\s/.test(text[at - 1]) && text[at + 1] !== "$" && /^(?:th|st|nd|rd|s)?(?!\w)/.test(text.slice(at + 1, at + 4));
}

/** Whether a text between the marks of a formula is one, and not prices, or brackets that are escaped. @param {string} open @param {string} source */
export function isFormula(open, source) {
  if (!source.trim() || source.includes("`")) return false;
  if (open === "$$") return !source.includes("$");
  if (open === "\\(") return !/^[A-Za-z']{2,}(?:[ ,]+[A-Za-z']+)+[.!?]?$/.test(source);
  // Other brackets are escaped ones.
  if (open === "\\[") return /[\\^_=+*/<>{}|]|^\s/.test(source);
  return !(/^\d[^\\^_={}]*$/.test(source) && /[A-Za-z]{2,}\s|[A-Za-z]{3,}/.test(source));
}

/**
 * The formula as MathML; as its source if it is not complete.
 *
 * @param {string} source
 * @param {boolean} display Whether it stands on a line of its own.
 * @param {string} [whole] The source with what encloses it.
 * @returns {Element}
 */
export function renderFormula(source, display, whole = source) {
  try {
    if (source.length > MAX_LENGTH) throw new FormulaError("too long");
    const content = new FormulaParser(source).whole();
    const math = m("math", { display: display ? "block" : undefined },
      m("semantics", {}, content, m("annotation", { encoding: "application/x-tex" }, source)));
    if (!display) return math;
    const box = document.createElement("span");
    box.className = "formula";
    box.append(math);
    return box;
  } catch (error) {
    if (!(error instanceof FormulaError)) throw error;
    const text = document.createElement("span");
    text.className = "formula-source";
    text.append(plain(whole));
    return text;
  }
}
