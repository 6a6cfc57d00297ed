/** Renders the inline part of Markdown to DOM nodes: emphasis by CommonMark's algorithm, code, links, line breaks. */

import { h } from "../dom.js";
import { closesFormula, isFormula, renderFormula } from "./formula.js";
import { plain } from "./plain.js";

/** Longer texts are shown as they are. */
const MAX_LENGTH = 20_000;
const SPECIAL = /[\\`*_~[\]!<&\n]|\$\$?|https?:\/\//g;
const TARGET = /\(\s*(?:<([^<>\n]*)>|([^\s()<]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)/y;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–" };
/** What ends a formula that begins with these. */
const FORMULA_ENDS = { $: "$", $$: "$$", "\\(": "\\)", "\\[": "\\]" };
/** Longer formulas inside a paragraph are shown as text. */
const MAX_FORMULA = 4000;

/**
 * @typedef {object} Delimiter
 * @property {Text} node
 * @property {string} char
 * @property {number} count
 * @property {number} original
 * @property {boolean} opens
 * @property {boolean} closes
 * @property {Delimiter | null} before
 * @property {Delimiter | null} after
 *
 * @typedef {{ node: Text, image: boolean, active: boolean, delimiter: Delimiter | null }} Bracket
 */

/**
 * The address if a link may lead there: web and mail only.
 *
 * @param {string} address
 * @returns {URL | null}
 */
function safeUrl(address) {
  try {
    const url = new URL(address.replace(/[\u0000-\u0020]/g, ""));
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

/**
 * A link that shows where it leads.
 *
 * @param {URL} url
 * @param {Node} content
 */
function link(url, content) {
  const target = url.protocol === "mailto:" ? url.pathname : url.host;
  const shown = (content.textContent ?? "").includes(target);
  const anchor = h("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", title: url.href }, content);
  if (!shown && target) anchor.append(h("span", { class: "target" }, ` (${target})`));
  return anchor;
}

/**
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function renderInline(text) {
  const out = document.createDocumentFragment();
  if (text.length > MAX_LENGTH) {
    out.append(plain(text));
    return out;
  }
  return new InlineParser(text, out).run();
}

class InlineParser {
  /** @param {string} text @param {DocumentFragment} out */
  constructor(text, out) {
    this.text = text;
    this.out = out;
    this.position = 0;
    /** @type {Delimiter | null} */
    this.last = null;
    /** @type {Bracket[]} */
    this.brackets = [];
    /** Lengths of runs of backticks that nothing closes. @type {Set<number>} */
    this.unclosed = new Set();
    /** Where the next ends of formulas stand that were looked for. @type {Map<string, { from: number, at: number }>} */
    this.formulaEnds = new Map();
  }

  run() {
    const { text } = this;
    while (this.position < text.length) {
      SPECIAL.lastIndex = this.position;
      const match = SPECIAL.exec(text);
      const end = match ? match.index : text.length;
      if (end > this.position) this.out.append(plain(text.slice(this.position, end)));
      this.position = end;
      if (match) this.special(match[0]);
    }
    this.emphasis(null);
    return this.out;
  }

  /** @param {string} char */
  special(char) {
    if (char === "\\") this.escape();
    else if (char === "`") this.code();
    else if (char[0] === "$") {
      if (this.formula(/** @type {"$" | "$$"} */ (char)) !== "shown") this.literal(char);
    }
    else if (char === "*" || char === "_" || char === "~") this.delimiter(char);
    else if (char === "[") this.openBracket("[", false);
    else if (char === "!") {
      if (this.text[this.position + 1] === "[") this.openBracket("![", true);
      else this.literal("!");
    } else if (char === "]") this.closeBracket();
    else if (char === "<") this.angle();
    else if (char === "&") this.entity();
    else if (char === "\n") this.newline();
    else this.address();
  }

  /** @param {string} text */
  literal(text) {
    this.out.append(text);
    this.position += text.length;
  }

  escape() {
    const next = this.text[this.position + 1];
    if (next === "(" || next === "[") {
      const found = this.formula(next === "(" ? "\\(" : "\\[");
      if (found === "shown") return;
      if (found === "unclosed") return this.literal(`\\${next}`);
    }
    if (next === "\n") {
      this.out.append(h("br"));
      this.position += 2;
    } else if (next && /[!-/:-@[-`{-~]/.test(next)) {
      this.out.append(next);
      this.position += 2;
    } else this.literal("\\");
  }

  /**
   * Shows the formula that begins here, if its end is there and it looks like one.
   *
   * @param {keyof typeof FORMULA_ENDS} open
   * @returns {"shown" | "unclosed" | "text"}
   */
  formula(open) {
    const start = this.position + open.length;
    if (open === "$" && (/[\s$]/.test(this.text[start] ?? " ") || /\w/.test(this.text[this.position - 1] ?? " "))) return "text";
    const end = this.formulaEnd(FORMULA_ENDS[open], start);
    if (end < 0) return "unclosed";
    const source = this.text.slice(start, end);
    if (source.length > MAX_FORMULA || !isFormula(open, source)) return "text";
    this.position = end + open.length;
    this.out.append(renderFormula(source, open === "$$" || open === "\\[", open + source + FORMULA_ENDS[open]));
    return "shown";
  }

  /** @param {string} end @param {number} from */
  formulaEnd(end, from) {
    const known = this.formulaEnds.get(end);
    if (known && known.from <= from && (known.at < 0 || known.at >= from)) return known.at;
    let at = this.text.indexOf(end, from);
    while (at >= 0 && !closesFormula(this.text, end, at)) at = this.text.indexOf(end, at + (this.text.startsWith("$$", at) ? 2 : 1));
    this.formulaEnds.set(end, { from, at });
    return at;
  }

  code() {
    const run = /** @type {RegExpExecArray} */ (/`+/.exec(this.text.slice(this.position, this.position + 4096)))[0];
    const start = this.position + run.length;
    if (!this.unclosed.has(run.length)) {
      let end = start;
      while ((end = this.text.indexOf(run, end)) >= 0) {
        let after = end + run.length;
        if (this.text[after] !== "`") {
          let code = this.text.slice(start, end).replaceAll("\n", " ");
          if (/^ .* $/s.test(code) && code.trim()) code = code.slice(1, -1);
          this.out.append(h("code", { dir: "ltr" }, plain(code)));
          this.position = after;
          return;
        }
        while (this.text[after] === "`") after++;
        end = after;
      }
      this.unclosed.add(run.length);
    }
    this.literal(run);
  }

  /** @param {string} char */
  delimiter(char) {
    const { text } = this;
    let end = this.position;
    while (text[end] === char) end++;
    const count = end - this.position;
    const before = this.position === 0 ? " " : text[this.position - 1];
    const after = end === text.length ? " " : text[end];
    const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    const node = document.createTextNode(text.slice(this.position, end));
    this.out.append(node);
    this.position = end;
    if (char === "~" && count > 2) return;
    const opens = char === "_" ? left && (!right || PUNCTUATION.test(before)) : left;
    const closes = char === "_" ? right && (!left || PUNCTUATION.test(after)) : right;
    /** @type {Delimiter} */
    const delimiter = { node, char, count, original: count, opens, closes, before: this.last, after: null };
    if (this.last) this.last.after = delimiter;
    this.last = delimiter;
  }

  /** @param {string} mark @param {boolean} image */
  openBracket(mark, image) {
    const node = document.createTextNode(mark);
    this.out.append(node);
    this.brackets.push({ node, image, active: true, delimiter: this.last });
    this.position += mark.length;
  }

  closeBracket() {
    const bracket = this.brackets.pop();
    this.position += 1;
    TARGET.lastIndex = this.position;
    const target = bracket?.active ? TARGET.exec(this.text) : null;
    const url = target && safeUrl((target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1"));
    if (!bracket || !target || !url) {
      this.out.append("]");
      return;
    }
    this.position += target[0].length;
    this.emphasis(bracket.delimiter);
    const content = document.createDocumentFragment();
    while (bracket.node.nextSibling) content.append(bracket.node.nextSibling);
    if (bracket.image) {
      // Images are never loaded: a request would tell another server about the reader.
      const label = content.textContent?.trim() || "image";
      const text = document.createDocumentFragment();
      text.append("Image: ", plain(label));
      bracket.node.replaceWith(link(url, text));
    } else {
      bracket.node.replaceWith(link(url, content));
      for (const earlier of this.brackets) if (!earlier.image) earlier.active = false;
    }
  }

  angle() {
    const rest = this.text.slice(this.position, this.position + 2048);
    const lineBreak = /^<br\s*\/?>/i.exec(rest);
    if (lineBreak) {
      this.out.append(h("br"));
      this.position += lineBreak[0].length;
      return;
    }
    const address = /^<((?:https?:\/\/|mailto:)[^\s<>]*|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>/i.exec(rest);
    const url = address && safeUrl(address[1].includes(":") ? address[1] : `mailto:${address[1]}`);
    if (!address || !url) {
      this.literal("<");
      return;
    }
    this.out.append(link(url, plain(address[1])));
    this.position += address[0].length;
  }

  entity() {
    const match = /^&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(\w{2,8}));/.exec(this.text.slice(this.position, this.position + 12));
    const code = match && (match[1] ? parseInt(match[1], 10) : match[2] ? parseInt(match[2], 16) : null);
    const char = match && (match[3] ? /** @type {any} */ (ENTITIES)[match[3]]
      : code && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd");
    if (!match || typeof char !== "string") {
      this.literal("&");
      return;
    }
    this.out.append(plain(char));
    this.position += match[0].length;
  }

  newline() {
    const before = this.out.lastChild;
    const hard = before instanceof Text && / {2,}$/.test(before.data);
    if (before instanceof Text) before.data = before.data.trimEnd();
    // Models end lines where they want them to end.
    this.out.append(hard || this.text[this.position - 1] !== " " ? h("br") : "\n");
    this.position += 1;
  }

  address() {
    const match = /** @type {RegExpExecArray} */ (/^https?:\/\/[^\s<>"'`\\]*/.exec(this.text.slice(this.position, this.position + 2048)));
    let address = match[0].replace(/[?!.,:;*_~]+$/, "");
    while (address.endsWith(")") && address.split(")").length > address.split("(").length) address = address.slice(0, -1);
    if (this.brackets.some(({ active, image }) => active && !image) && address.includes("](")) {
      address = address.slice(0, address.indexOf("]("));
    }
    const inLink = this.brackets.some(({ active, image }) => active && !image);
    if (inLink) address = address.split("]")[0];
    const url = !inLink && /^https?:\/\/[^/]/.test(address) ? safeUrl(address) : null;
    if (!url) {
      this.literal(address.length > 7 ? address : this.text.slice(this.position, this.position + 7));
      return;
    }
    this.out.append(link(url, plain(address)));
    this.position += address.length;
  }

  /**
   * Turns the delimiters after one into elements.
   *
   * @param {Delimiter | null} bottom
   */
  emphasis(bottom) {
    /** @type {Record<string, Delimiter | null>} */
    const openersBottom = {};
    let closer = this.last;
    while (closer && closer.before !== bottom) closer = closer.before;
    while (closer) {
      if (!closer.closes) {
        closer = closer.after;
        continue;
      }
      const key = `${closer.char}${closer.opens}${closer.original % 3}${closer.char === "~" ? closer.count : ""}`;
      const floor = openersBottom[key] ?? bottom;
      let opener = closer.before;
      while (opener && opener !== bottom && opener !== floor && !matches(opener, closer)) opener = opener.before;
      if (opener && opener !== bottom && opener !== floor) closer = this.wrap(opener, closer);
      else {
        openersBottom[key] = closer.before;
        const next = /** @type {Delimiter | null} */ (closer.after);
        if (!closer.opens) this.drop(closer);
        closer = next;
      }
    }
    while (this.last && this.last !== bottom) this.drop(this.last);
  }

  /**
   * Puts the nodes between two delimiters into an element. Returns the delimiter to go on with.
   *
   * @param {Delimiter} opener
   * @param {Delimiter} closer
   * @returns {Delimiter | null}
   */
  wrap(opener, closer) {
    const used = opener.char === "~" ? closer.count : opener.count >= 2 && closer.count >= 2 ? 2 : 1;
    const element = h(opener.char === "~" ? "del" : used === 2 ? "strong" : "em");
    while (opener.node.nextSibling && opener.node.nextSibling !== closer.node) element.append(opener.node.nextSibling);
    opener.node.after(element);
    while (closer.before && closer.before !== opener) this.drop(closer.before);
    for (const delimiter of [opener, closer]) {
      delimiter.count -= used;
      delimiter.node.data = delimiter.node.data.slice(used);
    }
    if (opener.count === 0) this.drop(opener);
    if (closer.count > 0) return closer;
    const next = closer.after;
    this.drop(closer);
    return next;
  }

  /** @param {Delimiter} delimiter */
  drop(delimiter) {
    if (delimiter.before) delimiter.before.after = delimiter.after;
    if (delimiter.after) delimiter.after.before = delimiter.before;
    else this.last = delimiter.before;
    if (delimiter.count === 0) delimiter.node.remove();
  }
}

/** @param {Delimiter} opener @param {Delimiter} closer */
function matches(opener, closer) {
  if (opener.char !== closer.char || !opener.opens) return false;
  if (opener.char === "~") return opener.count === closer.count;
  const odd = (closer.opens || opener.closes) && closer.original % 3 !== 0 && (opener.original + closer.original) % 3 === 0;
  return !odd;
}
