/** Colours code: comments, strings, numbers and keywords, alike enough in most languages. */

import { h } from "../dom.js";
import { plain } from "./plain.js";

/** Longer code is left plain. */
const MAX_LENGTH = 60_000;

const KEYWORDS = new Set(
  ("abstract alias and as assert async await auto begin bool boolean break by byte case catch char class const constexpr continue " +
    "crate def default defer del delete do double dyn elif else elsif end enum except export extends extern false final " +
    "finally float fn for foreach from func function global go goto if impl implements import in include inline instanceof int " +
    "interface is lambda let local long loop match mod module move mut namespace new nil none not null of operator or " +
    "override package pass private protected pub public raise ref require return self select short sizeof static string struct " +
    "super switch template then this throw trait true try type typedef typeof undefined union unless unsafe unsigned until " +
    "use using val var virtual void volatile when where while with yield").split(" "),
);
const SQL = new Set(
  ("select from where join left right inner outer on group order by having insert into values update set delete create table " +
    "index view drop alter add primary key foreign references not null and or in is like as distinct limit offset union all " +
    "case when then else end with exists between desc asc").split(" "),
);

const HASH = ["python", "py", "sh", "bash", "shell", "zsh", "ruby", "rb", "yaml", "yml", "toml", "r", "perl", "dockerfile", "makefile", "ini", "nix", "elixir"];
const DASH = ["sql", "lua", "haskell", "hs", "ada", "elm"];
const PLAIN = ["", "text", "txt", "plain", "plaintext", "console", "output", "markdown", "md", "diff"];

const STRINGS = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'|${"`"}(?:\\.|[^${"`"}\\])*${"`"}?`;
const REST = String.raw`(?<number>\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*)|(?<word>[A-Za-z_$][\w$]*)(?<call>(?=\())?`;

/** @param {string} comments */
function pattern(comments) {
  return new RegExp(`(?<comment>${comments})|(?<string>"""[^]*?(?:"""|$)|${STRINGS})|${REST}`, "g");
}

const BY_COMMENT = {
  slash: pattern(String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`),
  hash: pattern(String.raw`(?<![\w$])#[^\n]*`),
  dash: pattern(String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`),
  markup: pattern(String.raw`<!--[^]*?(?:-->|$)`),
};

/**
 * The nodes of a piece of code.
 *
 * @param {string} code
 * @param {string} language
 * @returns {DocumentFragment}
 */
export function highlight(code, language) {
  const out = document.createDocumentFragment();
  const name = language.toLowerCase();
  if (code.length > MAX_LENGTH || PLAIN.includes(name)) {
    out.append(plain(code));
    return out;
  }
  const style = HASH.includes(name) ? "hash" : DASH.includes(name) ? "dash" : /^(html|xml|svg|vue)$/.test(name) ? "markup" : "slash";
  const keywords = name === "sql" ? SQL : KEYWORDS;
  let from = 0;
  for (const match of code.matchAll(BY_COMMENT[style])) {
    const { comment, string, number, word, call } = /** @type {Record<string, string | undefined>} */ (match.groups);
    const isKey = name === "json" && string !== undefined && /^\s*:/.test(code.slice(match.index + match[0].length, match.index + match[0].length + 40));
    const kind = comment !== undefined ? "comment" : isKey ? "call" : string !== undefined ? "string" : number !== undefined ? "number"
      : keywords.has(name === "sql" ? /** @type {string} */ (word).toLowerCase() : /** @type {string} */ (word)) ? "keyword"
      : call !== undefined ? "call" : "";
    if (!kind) continue;
    out.append(plain(code.slice(from, match.index)), h("span", { class: `code-${kind}` }, plain(match[0])));
    from = match.index + match[0].length;
  }
  out.append(plain(code.slice(from)));
  return out;
}
