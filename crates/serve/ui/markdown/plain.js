/** Text that is shown as it is. */

import { h } from "../dom.js";

/** Characters that turn the order of text around, or that cannot be seen. */
const DECEPTIVE = /[\u202a-\u202e\u2066-\u2069\u200b\u2060\ufeff]/g;

/**
 * Text whose deceptive characters are shown by name.
 *
 * @param {string} text
 * @returns {Node}
 */
export function plain(text) {
  if (text.search(DECEPTIVE) < 0) return document.createTextNode(text);
  const fragment = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(DECEPTIVE)) {
    const name = `U+${match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    fragment.append(text.slice(from, match.index), h("span", { class: "deceptive", title: "An invisible character" }, name));
    from = match.index + 1;
  }
  fragment.append(text.slice(from));
  return fragment;
}
