/** Reads formulas in TeX, as models write it, into MathML. Unknown commands are shown as text. */

import { bracket, fence, functionWithLimits, group, m, padded, space, table } from "./mathml.js";
import { plain } from "./plain.js";
import {
  ACCENTS, ARROWS, DELIMITERS, FUNCTIONS, INTEGRALS, LARGE, LETTERS, LIMITS, OPERATORS, SPACES, SWITCHES, UNDER_ACCENTS, UPRIGHT, VARIANTS, WIDE_ACCENTS, inAlphabet,
} from "./symbols.js";

/**
 * @typedef {import("./symbols.js").Variant} Variant
 * @typedef {import("./mathml.js").Kind} Kind
 * @typedef {import("./mathml.js").Atom} Atom
 * @typedef {import("./mathml.js").Row} Row
 */

/** Deeper formulas are shown as their source. */
const MAX_DEPTH = 60;
/** Environments: how cells are aligned, and the brackets around them. @type {Record<string, [string, string?, string?]>} */
const ENVIRONMENTS = {
  matrix: ["matrix"], smallmatrix: ["matrix"], array: ["matrix"], pmatrix: ["matrix", "(", ")"], bmatrix: ["matrix", "[", "]"], Bmatrix: ["matrix", "{", "}"],
  vmatrix: ["matrix", "|", "|"], Vmatrix: ["matrix", "‖", "‖"], cases: ["cases", "{"], dcases: ["cases display", "{"], rcases: ["cases", "", "}"],
  aligned: ["aligned"], align: ["aligned"], alignat: ["aligned"], alignedat: ["aligned"], split: ["aligned"], eqnarray: ["aligned"], flalign: ["aligned"],
  gathered: ["gathered"], gather: ["gathered"], multline: ["gathered"], equation: ["aligned"], displaymath: ["aligned"], math: ["aligned"], subarray: ["gathered"],
};
/** Sizes behind \big and its relatives, in em. */
const SIZES = { big: 1.2, Big: 1.623, bigg: 2.047, Bigg: 2.47 };
/** What stands between two parts of a group: the brackets around, and whether there is a line. */
const INFIX = { over: ["", "", true], atop: ["", "", false], choose: ["(", ")", false], brace: ["{", "}", false], brack: ["[", "]", false] };
const NEGATED = { "=": "≠", "<": "≮", ">": "≯", "∈": "∉", "≤": "≰", "≥": "≱", "∃": "∄", "⊂": "⊄", "⊃": "⊅", "⊆": "⊈", "⊇": "⊉", "∼": "≁", "≈": "≉", "≡": "≢", "≅": "≇", "∣": "∤", "∥": "∦", "⊢": "⊬" };
/** Commands of layout that change nothing here. */
const SILENT = new Set("nonumber notag displaylimits limits nolimits null relax strut mathstrut allowbreak nobreak break newline cr protect scriptstyle scriptscriptstyle normalsize small large Large centering noindent".split(" "));
/** Commands whose argument is shown as it would be without them. */
const TRANSPARENT = new Set("mathop mathbin mathrel mathord mathopen mathclose mathpunct mathinner smash ensuremath hbox".split(" "));
/** Commands that put their argument between brackets. */
const ENCLOSED = { ket: ["|", "⟩"], Ket: ["|", "⟩"], bra: ["⟨", "|"], Bra: ["⟨", "|"], braket: ["⟨", "⟩"], Braket: ["⟨", "⟩"], abs: ["|", "|"], norm: ["‖", "‖"], set: ["{", "}"] };
/** Commands whose argument is text. */
const TEXTS = { text: "", textrm: "", mbox: "", textnormal: "", textup: "", fbox: "boxed", textbf: "bold", textit: "italic", emph: "italic", texttt: "mono", textsf: "sans" };
/** Lines around or through a term, which the style sheet draws: not all fonts have bars that grow. */
const STROKES = ["boxed", "cancel", "bcancel", "xcancel", "sout", "overline", "underline"];

/** A formula that is not complete, or not TeX. */
export class FormulaError extends Error {}

/** Reads one formula from left to right; no part is read twice. */
export class FormulaParser {
  /** @param {string} source @param {number} [depth] */
  constructor(source, depth = 0) {
    this.source = source;
    this.position = 0;
    this.depth = depth;
    /** @type {Variant | undefined} */
    this.variant = undefined;
  }

  /** The formula; lines and columns outside an environment are those of `aligned`. */
  whole() {
    const rows = this.rows([""]);
    return rows.length === 1 && rows[0].cells.length === 1 ? rows[0].cells[0] : table(rows, "aligned");
  }

  // Tokens: a command with its backslash, a character, or "" at the end.

  skipSpace() {
    const { source } = this;
    while (this.position < source.length && /\s/.test(source[this.position])) this.position++;
  }

  /** The next token, which stays. */
  peek() {
    this.skipSpace();
    const { source, position } = this;
    if (this.peekedAt === position) return /** @type {string} */ (this.peeked);
    this.peekedAt = position;
    const char = source[position] ?? "";
    if (char !== "\\") this.peeked = char && String.fromCodePoint(/** @type {number} */ (source.codePointAt(position)));
    else {
      NAME.lastIndex = position + 1;
      this.peeked = char + (NAME.exec(source)?.[0] ?? (position + 1 < source.length ? String.fromCodePoint(/** @type {number} */ (source.codePointAt(position + 1))) : ""));
    }
    return this.peeked;
  }

  take() {
    const token = this.peek();
    this.position += token.length;
    return token;
  }

  /** @param {string} token */
  takeIf(token) {
    if (this.peek() !== token) return false;
    this.take();
    return true;
  }

  /** @param {string} token */
  expect(token) {
    if (!this.takeIf(token)) throw new FormulaError(`${token} is missing`);
  }

  /** The text between braces, or the next character. */
  raw() {
    if (this.peek() !== "{") return this.take();
    const start = this.position + 1;
    let open = 0;
    for (let i = start - 1; i < this.source.length; i++) {
      const char = this.source[i];
      if (char === "\\") i++;
      else if (char === "{") open++;
      else if (char === "}" && --open === 0) {
        this.position = i + 1;
        return this.source.slice(start, i);
      }
    }
    throw new FormulaError("} is missing");
  }

  /** The text in brackets right here, if there are some. */
  rawOption() {
    if (this.source[this.position] !== "[") return "";
    const end = this.source.indexOf("]", this.position);
    if (end < 0) throw new FormulaError("] is missing");
    const text = this.source.slice(this.position + 1, end);
    this.position = end + 1;
    return text;
  }

  /** The row in brackets, if there is one. */
  option() {
    if (!this.takeIf("[")) return null;
    const row = this.row(["]"]);
    this.expect("]");
    return row;
  }

  // Rows and scripts

  /**
   * What stands before one of these tokens.
   *
   * @param {string[]} stops
   * @returns {Node}
   */
  row(stops) {
    return group(this.list(stops));
  }

  /** @param {string[]} stops @returns {Node[]} */
  list(stops) {
    if (++this.depth > MAX_DEPTH) throw new FormulaError("too deep");
    const variant = this.variant;
    /** @type {Node[]} */
    const nodes = [];
    /** @type {Kind} */
    let before = "open";
    for (let token = this.peek(); !stops.includes(token); token = this.peek()) {
      const name = token.slice(1);
      if (token === "" || token === "}" || token === "&" || token === "\\end" || token === "\\right") throw new FormulaError(`${token || "the end"} comes too early`);
      if (token[0] === "\\" && Object.hasOwn(INFIX, name)) return [this.infix(nodes, stops)];
      if (token === "\\displaystyle" || token === "\\textstyle") {
        this.take();
        nodes.push(m("mstyle", { displaystyle: token === "\\displaystyle", scriptlevel: 0 }, this.row(stops)));
        break;
      }
      if (SWITCHES.has(name) && token[0] === "\\") {
        this.take();
        this.variant = VARIANTS.get(name);
        continue;
      }
      const atom = this.scripted(before);
      if (atom.kind === "function" && before === "term") nodes.push(space(0.1667));
      nodes.push(atom.node);
      if (atom.kind === "function") nodes.push(...this.applied());
      before = atom.kind;
    }
    this.depth--;
    this.variant = variant;
    return nodes;
  }

  /** What follows the name of a function: a space, unless a bracket comes. */
  applied() {
    const next = this.peek();
    const close = next === "" || /^(?:[()[\]{}|,;.&^_=+]|-|\\(?:[)\]}{|,;!]|left|right|big|Big|bigl|Bigl|end|\\))/.test(next);
    return close ? [m("mo", {}, "\u2061")] : [m("mo", {}, "\u2061"), space(0.1667)];
  }

  /** @param {Node[]} above @param {string[]} stops */
  infix(above, stops) {
    const [open, close, line] = /** @type {Record<string, any[]>} */ (INFIX)[this.take().slice(1)];
    const fraction = m("mfrac", line ? {} : { linethickness: 0 }, group(above), this.row(stops));
    this.depth--;
    return open ? m("mrow", {}, fence(open, "prefix"), fraction, fence(close, "postfix")) : fraction;
  }

  /** A term with its limits, indices and primes. @param {Kind} before @returns {Atom} */
  scripted(before) {
    const first = this.peek();
    /** @type {Atom} */
    const base = first === "_" || first === "^" || first === "'" ? { node: m("mrow", {}), kind: "term" } : this.atom(before);
    /** @type {Node | undefined} */
    let below;
    /** @type {Node | undefined} */
    let above;
    for (;;) {
      const token = this.peek();
      if (token === "\\limits" || token === "\\nolimits") base.limits = this.take() === "\\limits";
      else if (token === "_" && !below) below = this.script();
      else if (token === "^" && !above) above = this.script();
      else if ((token === "'" || token === "’") && !above) above = this.primes();
      else break;
    }
    const [under, over, both] = base.limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    const node = below && above ? m(both, {}, base.node, below, above) : below ? m(under, {}, base.node, below) : above ? m(over, {}, base.node, above) : base.node;
    return { node, kind: base.kind };
  }

  script() {
    this.take();
    return this.argument();
  }

  primes() {
    let count = 0;
    while (this.peek() === "'" || this.peek() === "’") count += this.take().length;
    const node = m("mo", {}, ["", "′", "″", "‴"][count] ?? "′".repeat(count));
    return this.peek() === "^" ? m("mrow", {}, node, this.script()) : node;
  }

  /** What a command takes: a group, or one character or command. */
  argument() {
    const token = this.peek();
    if (/^\d$/.test(token)) return m("mn", {}, inAlphabet(this.take(), this.variant));
    if (token === "" || token === "}" || token === "&" || token === "^" || token === "_" || token === "\\\\" || token === "\\right" || token === "\\end") throw new FormulaError("an argument is missing");
    return this.atom("open").node;
  }

  /** One term. @param {Kind} before @returns {Atom} */
  atom(before) {
    if (++this.depth > MAX_DEPTH) throw new FormulaError("too deep");
    const token = this.peek();
    const atom = token === "{" ? this.braces() : token[0] === "\\" ? this.command(before) : this.character(before);
    this.depth--;
    return atom;
  }

  /** @returns {Atom} */
  braces() {
    this.take();
    const node = this.row(["}"]);
    this.expect("}");
    return { node, kind: "term" };
  }

  /** @param {Kind} before @returns {Atom} */
  character(before) {
    NUMBER.lastIndex = this.position;
    const number = NUMBER.exec(this.source)?.[0];
    if (number) {
      this.position += number.length;
      return { node: m("mn", {}, inAlphabet(number, this.variant)), kind: "term" };
    }
    const char = this.take();
    if (/\p{L}|\p{M}/u.test(char)) return this.letter(char);
    if (char === "~") return { node: space(0.25), kind: before };
    if (DELIMITERS.has(char) && char !== "<" && char !== ">") return bracket(char);
    // The source shows characters that cannot be seen.
    if (/[\u200b-\u200f\u202a-\u202e\u2060-\u206f\p{Cc}]/u.test(char)) throw new FormulaError("an invisible character");
    return this.operator({ "-": "−", "*": "∗" }[char] ?? char, before);
  }

  /** @param {string} char @param {boolean} [upright] @returns {Atom} */
  letter(char, upright = this.variant === "normal") {
    return { node: m("mi", upright ? { mathvariant: "normal" } : {}, inAlphabet(char, this.variant)), kind: "term" };
  }

  /** @param {string} text @param {Kind} before @returns {Atom} */
  operator(text, before) {
    // A sign at the start, or behind another operator, belongs to what follows.
    const form = /^[−+±∓]$/.test(text) && before !== "term" ? "prefix" : undefined;
    const kind = /^[.!%?′°…⋯]$/.test(text) ? "term" : "operator";
    return { node: m("mo", { form }, text), kind };
  }

  // Commands

  /** @param {Kind} before @returns {Atom} */
  command(before) {
    const token = this.take();
    const name = token.slice(1);
    if (DELIMITERS.has(token)) return bracket(/** @type {string} */ (DELIMITERS.get(token)));
    if (SPACES.has(name)) return { node: space(/** @type {number} */ (SPACES.get(name))), kind: before };
    if (/^[%#$&_]$/.test(name)) return { node: m("mo", { lspace: 0, rspace: 0 }, name), kind: "term" };
    return this.symbol(name, before) ?? this.construct(name) ?? this.layout(name, before) ?? this.unknown(token);
  }

  /** @param {string} name @param {Kind} before @returns {Atom | null} */
  symbol(name, before) {
    const letter = LETTERS.get(name);
    if (letter) return this.letter(letter);
    const upright = UPRIGHT.get(name);
    if (upright) return this.letter(upright, !this.variant || this.variant === "normal");
    const operator = OPERATORS.get(name);
    if (operator) return this.operator(operator, before);
    const large = LARGE.get(name);
    if (large) return { node: m("mo", {}, large), kind: "operator", limits: true };
    const integral = INTEGRALS.get(name);
    if (integral) return { node: m("mo", {}, integral), kind: "operator" };
    if (FUNCTIONS.has(name)) return { node: m("mi", {}, name), kind: "function" };
    const limit = LIMITS.get(name);
    return limit ? functionWithLimits(limit.replaceAll("~", "\u00a0")) : null;
  }

  /** Commands with arguments. @param {string} name @returns {Atom | null} */
  construct(name) {
    const term = (/** @type {Node} */ node) => ({ node, kind: /** @type {const} */ ("term") });
    if (/^[dtc]?frac$/.test(name)) return term(this.fraction(name[0]));
    if (/^[dt]?binom$/.test(name)) return term(this.fraction(name[0], true));
    if (name === "sqrt") {
      const degree = this.option();
      return term(degree ? m("mroot", {}, this.argument(), degree) : m("msqrt", {}, this.argument()));
    }
    if (VARIANTS.has(name)) return this.inVariant(/** @type {Variant} */ (VARIANTS.get(name)));
    if (Object.hasOwn(TEXTS, name)) return term(this.text(/** @type {Record<string, string>} */ (TEXTS)[name]));
    if (name === "operatorname") return this.operatorName();
    if (name === "left") return term(this.fenced());
    if (name === "begin") return term(this.environment());
    if (name === "not") return this.negated();
    if (name === "ce") return term(this.chemistry());
    if (Object.hasOwn(ENCLOSED, name)) {
      const [open, close] = /** @type {Record<string, string[]>} */ (ENCLOSED)[name];
      return term(m("mrow", {}, fence(open, "prefix"), this.argument(), fence(close, "postfix")));
    }
    return this.decorated(name) ?? this.sized(name);
  }

  /** @param {string} style @param {boolean} [isBinomial] */
  fraction(style, isBinomial = false) {
    const node = m("mfrac", isBinomial ? { linethickness: 0 } : {}, this.argument(), this.argument());
    const part = isBinomial ? m("mrow", {}, fence("(", "prefix"), node, fence(")", "postfix")) : node;
    return style === "d" || style === "c" ? m("mstyle", { displaystyle: true, scriptlevel: 0 }, part)
      : style === "t" ? m("mstyle", { displaystyle: false, scriptlevel: 0 }, part) : part;
  }

  /** Letters of an alphabet; several upright ones are a word. @param {Variant} variant @returns {Atom} */
  inVariant(variant) {
    const outer = this.variant;
    this.variant = variant;
    WORD.lastIndex = this.position;
    const word = WORD.exec(this.source);
    /** @type {Node} */
    let node;
    if (word && (variant === "normal" || /\d/.test(word[1]))) {
      this.position += word[0].length;
      node = m(/^\d+$/.test(word[1]) ? "mn" : "mi", variant === "normal" && word[1].length === 1 ? { mathvariant: "normal" } : {}, inAlphabet(word[1].replaceAll(" ", "\u00a0"), variant));
    } else node = this.argument();
    this.variant = outer;
    return { node, kind: "term" };
  }

  /** Text, in which `$` encloses formulas. @param {string} style */
  text(style) {
    const parts = this.raw().split(/(?<!\\)\$/);
    if (parts.length % 2 === 0) throw new FormulaError("$ is missing");
    const nodes = parts.map((part, index) => index % 2
      ? new FormulaParser(part, this.depth + 1).whole()
      : m("mtext", { class: style }, plain(part.replace(/\\([%$#&_{} ])/g, "$1").replace(/^\s+|\s+$/g, "\u00a0").replaceAll("~", "\u00a0"))));
    return group(nodes.filter((node) => node.textContent || nodes.length === 1));
  }

  /** A formula of chemistry: numbers behind elements are indices, signs at the end are charges. */
  chemistry() {
    const source = this.raw().replace(/<=+>|<->/g, "\\rightleftharpoons ").replace(/-+>/g, "\\rightarrow ").replace(/([A-Za-z\])])(\d+)/g, "$1_{$2}")
      .replace(/([A-Za-z\]})])([+-])(?=\s|$|[)\]])/g, "$1^{$2}");
    const parser = new FormulaParser(source, this.depth + 1);
    parser.variant = "normal";
    return parser.whole();
  }

  /** @returns {Atom} */
  operatorName() {
    const limits = this.takeIf("*");
    const name = this.raw().replace(/\\[,;: ]|~/g, "\u00a0").replace(/\\(?:mathrm|text|rm)\b|[{}]/g, "");
    return limits ? functionWithLimits(name) : { node: m("mi", name.length === 1 ? { mathvariant: "normal" } : {}, plain(name)), kind: "function" };
  }

  /** A bracket behind \left, \right, \middle or \big; "" for a dot. */
  delimiter() {
    const token = this.take();
    if (token === ".") return "";
    const text = DELIMITERS.get(token);
    if (text === undefined) throw new FormulaError(`${token} is not a bracket`);
    return text;
  }

  fenced() {
    const nodes = [];
    const open = this.delimiter();
    if (open) nodes.push(fence(open, "prefix"));
    for (;;) {
      nodes.push(...this.list(["\\right", "\\middle"]));
      if (this.take() === "\\right") break;
      nodes.push(m("mo", { stretchy: true, symmetric: true, lspace: "0.05em", rspace: "0.05em" }, this.delimiter()));
    }
    const close = this.delimiter();
    if (close) nodes.push(fence(close, "postfix"));
    return m("mrow", {}, ...nodes);
  }

  /** \big and its relatives. @param {string} name @returns {Atom | null} */
  sized(name) {
    const match = /^(big|Big|bigg|Bigg)([lrm]?)$/.exec(name);
    if (!match) return null;
    const size = `${SIZES[/** @type {keyof typeof SIZES} */ (match[1])]}em`;
    const text = this.delimiter();
    const form = { l: "prefix", r: "postfix" }[match[2]];
    return { node: m("mo", { minsize: size, maxsize: size, stretchy: true, symmetric: true, form, lspace: form ? undefined : 0, rspace: form ? undefined : 0 }, text), kind: match[2] === "l" ? "open" : "term" };
  }

  /** @returns {Atom} */
  negated() {
    const token = this.take();
    const text = OPERATORS.get(token.slice(1)) ?? token;
    if (text.startsWith("\\") || !text) throw new FormulaError("\\not needs a sign");
    return { node: m("mo", {}, /** @type {Record<string, string>} */ (NEGATED)[text] ?? `${text}\u0338`), kind: "operator" };
  }

  /** Accents, braces, arrows, and what stands above or below. @param {string} name @returns {Atom | null} */
  decorated(name) {
    const accent = ACCENTS.get(name) ?? WIDE_ACCENTS.get(name);
    const hasLimits = /brace$|bracket$|paren$/.test(name);
    if (accent) return { node: m("mover", { accent: true }, this.argument(), m("mo", { stretchy: WIDE_ACCENTS.has(name) }, accent)), kind: "term", limits: hasLimits };
    const under = UNDER_ACCENTS.get(name);
    if (under) return { node: m("munder", { accentunder: true }, this.argument(), m("mo", { stretchy: true }, under)), kind: "term", limits: hasLimits };
    const arrow = ARROWS.get(name);
    if (arrow) {
      const below = this.option();
      const [sign, above] = [m("mo", { stretchy: true, minsize: "1.5em" }, arrow), padded(this.argument())];
      return { node: below ? m("munderover", {}, sign, padded(below), above) : m("mover", {}, sign, above), kind: "operator" };
    }
    if (name === "overset" || name === "stackrel" || name === "underset") {
      const [mark, base] = [this.argument(), this.argument()];
      return { node: m(name === "underset" ? "munder" : "mover", {}, base, mark), kind: base.nodeName === "mo" ? "operator" : "term" };
    }
    return null;
  }

  /** Commands that change how something looks or where it stands. @param {string} name @param {Kind} before @returns {Atom | null} */
  layout(name, before) {
    const term = (/** @type {Node} */ node) => ({ node, kind: /** @type {const} */ ("term") });
    if (SILENT.has(name)) return { node: m("mrow", {}), kind: before };
    if (TRANSPARENT.has(name)) return term(this.argument());
    if (STROKES.includes(name)) return term(m("mrow", { class: name }, this.argument()));
    if (/^[vh]?phantom$/.test(name)) return term(m("mphantom", {}, this.argument()));
    if (name === "substack") return term(this.substack());
    if (name === "bmod") return this.operator("mod", before);
    if (name === "pmod" || name === "pod") return term(m("mrow", {}, space(0.5), bracket("(").node, ...(name === "pmod" ? [m("mi", {}, "mod"), space(0.3333)] : []), this.argument(), bracket(")").node));
    if (name === "mod") return term(m("mrow", {}, space(0.5), m("mi", {}, "mod"), space(0.3333)));
    if (name === "tag") return term(this.tag());
    if (name === "label") return this.raw() !== null ? { node: m("mrow", {}), kind: before } : null;
    if (name === "color" || name === "textcolor") return this.coloured(name);
    if (/^(?:hspace|hskip|kern|mkern|mskip|vspace)$/.test(name)) return { node: space(this.length()), kind: before };
    return null;
  }

  tag() {
    const star = this.takeIf("*");
    return m("mrow", {}, space(2), m("mtext", {}, plain(star ? this.raw() : `(${this.raw()})`)));
  }

  /** Colours are left to the page. @param {string} name @returns {Atom} */
  coloured(name) {
    this.raw();
    return { node: name === "textcolor" ? this.argument() : m("mrow", {}), kind: "term" };
  }

  /** A length in em, at most a few. */
  length() {
    this.takeIf("*");
    LENGTH.lastIndex = this.position;
    const match = LENGTH.exec(this.source);
    if (!match) return 0.5;
    this.position += match[0].length;
    const scale = { em: 1, ex: 0.5, mu: 1 / 18, pt: 0.1, px: 0.0625, cm: 2.8, mm: 0.28 }[match[2]] ?? 1;
    return Math.min(4, Math.max(-1, Number(match[1]) * scale));
  }

  /** Shows the command, and its arguments behind it. @param {string} token @returns {Atom} */
  unknown(token) {
    /** @type {Node[]} */
    const nodes = [m("mtext", { class: "unknown" }, plain(token))];
    while (this.peek() === "{") nodes.push(m("mo", { stretchy: false }, "{"), this.braces().node, m("mo", { stretchy: false }, "}"));
    return { node: group(nodes), kind: "term" };
  }

  // Tables

  /**
   * Rows of cells, up to one of these tokens.
   *
   * @param {string[]} stops
   * @returns {Row[]}
   */
  rows(stops) {
    /** @type {Row[]} */
    const rows = [{ cells: [] }];
    for (;;) {
      const row = rows[rows.length - 1];
      while (!row.cells.length && this.takeIf("\\hline")) row.line = true;
      const cell = this.row([...stops, "&", "\\\\", "\\cr"]);
      row.cells.push(cell);
      const token = this.peek();
      if (stops.includes(token)) break;
      this.take();
      if (token === "&") continue;
      this.takeIf("*");
      if (/^\s*\[\s*-?[\d.]+\s*(?:em|ex|pt|mm|cm|px)\s*\]/.test(this.source.slice(this.position, this.position + 24))) {
        this.skipSpace();
        this.rawOption();
      }
      rows.push({ cells: [] });
    }
    // A line break behind the last row makes no other.
    const last = rows[rows.length - 1];
    const [only] = last.cells;
    if (rows.length > 1 && last.cells.length === 1 && only.nodeName === "mrow" && !only.hasChildNodes()) {
      rows.pop();
      rows[rows.length - 1].lastLine = last.line;
    }
    return rows;
  }

  environment() {
    const given = this.raw();
    const name = given.replace(/\*$/, "");
    const known = Object.hasOwn(ENVIRONMENTS, name);
    if (!known) throw new FormulaError(`${name} is unknown`);
    this.rawOption();
    const columns = /^(?:array|alignat|alignedat|subarray)$/.test(name) ? this.raw() : "";
    const rows = this.rows(["\\end"]);
    this.expect("\\end");
    if (this.raw() !== given) throw new FormulaError(`${name} does not end`);
    const [kind, open, close] = ENVIRONMENTS[name];
    const node = table(rows, kind, /[lcr]/.test(columns) ? columns.replace(/[^lcr|]/g, "") : "");
    if (open === undefined && close === undefined) return node;
    return m("mrow", {}, ...(open ? [fence(open, "prefix")] : []), node, ...(close ? [fence(close, "postfix")] : []));
  }

  substack() {
    this.expect("{");
    const rows = this.rows(["}"]);
    this.expect("}");
    return table(rows, "substack");
  }
}

const NAME = /[A-Za-z]+/y;
const NUMBER = /\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+/y;
const WORD = /\s*\{\s*([A-Za-z0-9][A-Za-z0-9 ]*?)\s*\}/y;
const LENGTH = /\s*\{?\s*(-?\d*\.?\d+)\s*([a-z]{2})\s*\}?/y;
