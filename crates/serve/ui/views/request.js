/** How an answer was asked for: its request, the same as a curl command, and whether it can be repeated. */

import { bodyOf, runAgain } from "../answer.js";
import { fill, h } from "../dom.js";
import { openDialog } from "../feedback.js";
import { copy, messageOf, plural } from "../text.js";

/** @typedef {import("../tree.js").Message} Message */

/** A text as one word of a POSIX shell. @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** @param {Record<string, any>} body */
function curl(body) {
  const url = `${location.origin}/v1/chat/completions`;
  return `curl ${quoted(url)} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
}

/** @param {string} label @param {string} text */
function copyable(label, text) {
  const button = h("button", { type: "button", onclick: async () => {
    button.textContent = (await copy(text)) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }, "aria-label": `Copy the ${label}` }, "Copy");
  return h("section", {}, h("div", { class: "row spread" }, h("h3", {}, label), button),
    h("pre", { class: "raw", tabIndex: 0, role: "region", "aria-label": label }, text));
}

/** @param {Map<string, Message>} messages @param {Message} message */
export function inspect(messages, message) {
  if (!message.request) {
    openDialog("Request", [h("p", {}, "This answer was written by hand.")]);
    return;
  }
  const body = bodyOf(messages, message);
  const stopper = new AbortController();
  const result = h("p", { class: "result", role: "status" }, `Seed ${message.request.seed}. The same request gives the same text, whatever else the server does.`);
  const button = h("button", { type: "button", class: "primary", onclick: () => check() }, "Run again with this seed");
  const check = async () => {
    button.disabled = true;
    result.className = "result";
    try {
      const { same, length, expected, got } = await runAgain(messages, message, (now, total) => {
        result.textContent = `${now} of ${total} characters`;
      }, stopper.signal);
      result.classList.add(same ? "same" : "differs");
      fill(result, same
        ? `Equal, byte for byte: ${plural(new TextEncoder().encode(expected).length, "byte")}.`
        : `Different from character ${length + 1} on: “${expected.slice(length, length + 40)}” was “${got.slice(length, length + 40)}” this time.`);
    } catch (error) {
      if (!stopper.signal.aborted) result.textContent = messageOf(error);
    }
    button.disabled = false;
  };
  const { closed } = openDialog("Request", [
    h("section", { class: "again" }, h("div", { class: "row spread" }, h("h3", {}, "Reproducibility"), button), result),
    copyable("curl", curl(body)),
    copyable("JSON", JSON.stringify(body, null, 2)),
  ], { wide: true });
  closed.then(() => stopper.abort());
}
