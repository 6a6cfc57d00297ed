/** Splits Markdown into blocks: CommonMark's and GitHub's, without HTML. */

import { isFormula } from "./formula.js";

/**
 * @typedef {object} Block
 * @property {"paragraph" | "heading" | "code" | "quote" | "list" | "table" | "rule" | "formula"} type
 * @property {number} start Where its first line begins.
 * @property {string} [text] Of a paragraph, a heading, code or a formula.
 * @property {number} [level] Of a heading.
 * @property {string} [language] Of code.
 * @property {boolean} [open] Whether the end is missing: of code, or of a formula, which is a paragraph until then.
 * @property {string} [after] The punctuation behind a formula.
 * @property {string} [source] Of a formula, with its marks.
 * @property {Block[]} [children] Of a quote.
 * @property {Item[]} [items] Of a list.
 * @property {number} [first] The number of an ordered list's first item.
 * @property {boolean} [loose] Whether a list's items are paragraphs.
 * @property {string[][]} [rows] Of a table, its head first.
 * @property {("left" | "center" | "right" | "")[]} [alignments] Of a table's columns.
 *
 * @typedef {{ children: Block[], checked?: boolean }} Item
 */

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const INDENTED = /^(?: {4}| {0,3}\t)/;
const BLANK = /^[ \t]*$/;
/** Environments also begin formulas without marks. */
const FORMULA = /^ {0,3}(\$\$|\\\[|\\begin\{((?:equation|align|aligned|alignat|gather|gathered|multline|eqnarray|split|cases|array|[bBpvV]?matrix)\*?)\})/;
/** Formulas with more lines are text. */
const MAX_FORMULA_LINES = 100;
/** Deeper nesting is shown as text. */
const MAX_DEPTH = 12;

/**
 * The blocks of a text from a position, which is the start of a line.
 *
 * @param {string} text
 * @param {number} [from]
 * @param {number} [depth]
 * @returns {Block[]}
 */
export function parseBlocks(text, from = 0, depth = 0) {
  const lines = text.slice(from).split("\n");
  if (depth >= MAX_DEPTH) return [{ type: "paragraph", start: from, text: lines.join("\n") }];
  const blocks = [];
  let offset = from;
  let index = 0;
  while (index < lines.length) {
    if (BLANK.test(lines[index])) {
      offset += lines[index++].length + 1;
      continue;
    }
    const [block, next] = blockAt(lines, index, depth);
    blocks.push({ ...block, start: offset });
    for (; index < next; index++) offset += lines[index].length + 1;
  }
  return blocks;
}

/**
 * The block at a line, and the line behind it.
 *
 * @param {string[]} lines
 * @param {number} index
 * @param {number} depth
 * @returns {[Omit<Block, "start">, number]}
 */
function blockAt(lines, index, depth) {
  const line = lines[index];
  const fence = FENCE.exec(line);
  if (fence) return fencedCode(lines, index, fence);
  const shown = formula(lines, index);
  if (shown) return shown;
  const heading = HEADING.exec(line);
  if (heading) return [{ type: "heading", level: heading[1].length, text: heading[2] ?? "" }, index + 1];
  if (RULE.test(line)) return [{ type: "rule" }, index + 1];
  if (QUOTE.test(line)) return quote(lines, index, depth);
  if (INDENTED.test(line)) return indentedCode(lines, index);
  if (ITEM.test(line)) return list(lines, index, depth);
  if (isTable(lines, index)) return table(lines, index);
  return paragraph(lines, index);
}

/** Whether a line ends a paragraph. @param {string} line */
function interrupts(line) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  // An empty item, or one that begins with another number than 1, is more likely part of a sentence.
  return item !== null && item[1].length < 4 && item[3] !== "" && !/^(?!1[.)])\d/.test(item[2]);
}

/** @param {string[]} lines @param {number} index @param {RegExpExecArray} fence @returns {[Omit<Block, "start">, number]} */
function fencedCode(lines, index, fence) {
  const [mark, indent] = [fence[1], /^ */.exec(lines[index])?.[0].length ?? 0];
  const closing = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
  const code = [];
  let next = index + 1;
  while (next < lines.length && !closing.test(lines[next])) {
    code.push(indent ? lines[next].replace(new RegExp(`^ {0,${indent}}`), "") : lines[next]);
    next++;
  }
  const open = next === lines.length;
  const language = fence[2].trim().split(/\s/, 1)[0];
  return [{ type: "code", language, text: code.join("\n"), open }, open ? next : next + 1];
}

/**
 * The formula that begins at a line and takes whole lines; a paragraph while its end is missing.
 *
 * @param {string[]} lines
 * @param {number} index
 * @returns {[Omit<Block, "start">, number] | null}
 */
function formula(lines, index) {
  const opening = FORMULA.exec(lines[index]);
  if (!opening) return null;
  const environment = opening[2];
  const mark = environment ? `\\end{${environment}}` : opening[1] === "$$" ? "$$" : "\\]";
  const text = [];
  let from = environment ? 0 : opening[0].length;
  let next = index;
  for (; next < lines.length && next < index + MAX_FORMULA_LINES; next++) {
    const line = lines[next];
    if (next > index && FENCE.test(line)) return null;
    const end = line.indexOf(mark, from);
    text.push(line.slice(from, end < 0 ? undefined : environment ? end + mark.length : end));
    from = 0;
    if (end < 0) continue;
    const after = line.slice(end + mark.length).trim();
    // With words behind it, it is part of a paragraph.
    return /^[.,;:!?]*$/.test(after) && isFormula(opening[1], text.join("\n"))
      ? [{ type: "formula", text: text.join("\n"), after, source: lines.slice(index, next + 1).join("\n") }, next + 1] : null;
  }
  if (next < lines.length) return null;
  let stop = index + 1;
  while (stop < lines.length && !BLANK.test(lines[stop])) stop++;
  return [{ type: "paragraph", text: lines.slice(index, stop).join("\n"), open: true }, stop];
}

/** @param {string[]} lines @param {number} index @returns {[Omit<Block, "start">, number]} */
function indentedCode(lines, index) {
  const code = [];
  let next = index;
  while (next < lines.length && (INDENTED.test(lines[next]) || BLANK.test(lines[next]))) {
    code.push(lines[next++].replace(INDENTED, ""));
  }
  while (code.length && BLANK.test(code[code.length - 1])) code.pop();
  return [{ type: "code", language: "", text: code.join("\n") }, next];
}

/** @param {string[]} lines @param {number} index @param {number} depth @returns {[Omit<Block, "start">, number]} */
function quote(lines, index, depth) {
  const inner = [];
  let next = index;
  for (; next < lines.length; next++) {
    const line = lines[next];
    if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
    else if (!BLANK.test(line) && !interrupts(line) && !BLANK.test(inner[inner.length - 1])) inner.push(line);
    else break;
  }
  return [{ type: "quote", children: parseBlocks(inner.join("\n"), 0, depth + 1) }, next];
}

/** The kind of list that a marker belongs to. @param {string} marker */
function listKind(marker) {
  return marker.length > 1 ? marker[marker.length - 1] : marker;
}

/** @param {string[]} lines @param {number} index @param {number} depth @returns {[Omit<Block, "start">, number]} */
function list(lines, index, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[index]));
  const kind = listKind(first[2]);
  const items = [];
  let loose = false;
  let next = index;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || item[1].length > 3 || listKind(item[2]) !== kind || RULE.test(lines[next])) break;
    const [inner, end, blanks] = itemLines(lines, next, item);
    const task = /^\[([ xX])\](?=\s)/.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const children = parseBlocks(inner.join("\n"), 0, depth + 1);
    items.push(task ? { children, checked: task[1] !== " " } : { children });
    const another = ITEM.exec(lines[end] ?? "");
    if (inner.some((line, i) => i > 0 && i < inner.length - 1 && BLANK.test(line)) && children.length > 1) {
      loose ||= children.filter(({ type }) => type === "paragraph").length > 1;
    }
    if (blanks && another && another[1].length < 4 && listKind(another[2]) === kind) loose = true;
    next = end;
  }
  const number = parseInt(first[2], 10);
  return [{ type: "list", items, loose, ...(Number.isNaN(number) ? {} : { first: number }) }, next];
}

/**
 * The lines of an item without its indentation, the line behind it, and whether blank lines follow it.
 *
 * @param {string[]} lines
 * @param {number} index
 * @param {RegExpExecArray} item
 * @returns {[string[], number, boolean]}
 */
function itemLines(lines, index, item) {
  const marker = item[1].length + item[2].length;
  const space = item[3].length > 4 || item[3] === "" ? 1 : item[3].length;
  const indent = marker + space;
  const inner = [lines[index].slice(Math.min(indent, lines[index].length))];
  let next = index + 1;
  let blanks = 0;
  for (; next < lines.length; next++) {
    const line = lines[next];
    if (BLANK.test(line)) {
      blanks++;
      continue;
    }
    const spaces = /^ */.exec(line)?.[0].length ?? 0;
    // Models often indent the items of nested lists by two characters, whatever the marker is.
    const nested = spaces > item[1].length + 1 && ITEM.test(line);
    const lazy = blanks === 0 && !interrupts(line) && !ITEM.test(line);
    if (spaces < indent && !nested && !lazy && !line.startsWith("\t")) break;
    while (blanks > 0) {
      inner.push("");
      blanks--;
    }
    inner.push(line.startsWith("\t") ? line.slice(1) : line.slice(Math.min(spaces, indent)));
  }
  return [inner, next, blanks > 0];
}

/**
 * The cells of a row. Bars within formulas count only if there are not too many cells without them.
 *
 * @param {string} line
 * @param {number} [count] Cells of the table.
 * @returns {string[]}
 */
function cells(line, count = Infinity) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, (bar, at, all) => (all[at - 1] === "\\" ? bar : ""));
  const split = inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  if (split.length <= count || !inner.includes("$")) return split;
  const whole = cells(inner.replace(/\$[^$\s][^$]*\$/g, (formula) => formula.replace(/(?<!\\)\|/g, "\\|")));
  return whole.length === count ? whole : split;
}

/** @param {string[]} lines @param {number} index */
function isTable(lines, index) {
  const delimiters = lines[index + 1];
  if (!lines[index].includes("|") || delimiters === undefined || !DELIMITERS.test(delimiters)) return false;
  const count = cells(delimiters).length;
  return cells(lines[index], count).length === count;
}

/** @param {string[]} lines @param {number} index @returns {[Omit<Block, "start">, number]} */
function table(lines, index) {
  const head = cells(lines[index], cells(lines[index + 1]).length);
  const alignments = cells(lines[index + 1]).map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : right ? "right" : left ? "left" : "";
  });
  const rows = [head];
  let next = index + 2;
  for (; next < lines.length && !BLANK.test(lines[next]) && !interrupts(lines[next]); next++) {
    const row = cells(lines[next], head.length).slice(0, head.length);
    while (row.length < head.length) row.push("");
    rows.push(row);
  }
  return [{ type: "table", rows, alignments: /** @type {any} */ (alignments) }, next];
}

/** @param {string[]} lines @param {number} index @returns {[Omit<Block, "start">, number]} */
function paragraph(lines, index) {
  const text = [lines[index].trimStart()];
  let next = index + 1;
  for (; next < lines.length && !BLANK.test(lines[next]); next++) {
    const underline = /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[next]);
    if (underline) {
      const level = underline[1][0] === "=" ? 1 : 2;
      return [{ type: "heading", level, text: text.join("\n") }, next + 1];
    }
    if (interrupts(lines[next]) || isTable(lines, next) || formula(lines, next)) break;
    text.push(lines[next].trimStart());
  }
  return [{ type: "paragraph", text: text.join("\n") }, next];
}
