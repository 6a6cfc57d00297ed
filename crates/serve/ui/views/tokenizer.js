/** Shows the tokens of a text as it is written. */

import { fieldsOf, models, tokenize } from "../api.js";
import { fill, h } from "../dom.js";
import { messageOf, plural } from "../text.js";
import { ToolView } from "./tool.js";

/** Tokens that are shown. */
const MOST = 5000;

export class TokenizerView extends ToolView {
  /** @param {{ openSidebar: () => void }} page */
  constructor(page) {
    super(page, "Tokenizer", "How a model reads a text: each block is a token, with its number below.");
    this.picker = h("select", { id: "tokenizer-model", onchange: () => this.show() });
    this.text = h("textarea", { id: "tokenizer-text", rows: 6, dir: "auto", oninput: () => this.later(), value: "Once upon a time, there was a naïve 猫." });
    this.result = h("div", { class: "result", "aria-live": "off" });
    this.count = h("p", { class: "muted", role: "status" });
    this.content.append(h("label", { class: "field", for: "tokenizer-model" }, "Model", this.picker),
      h("label", { class: "field", for: "tokenizer-text" }, "Text", this.text), this.count, this.result);
  }

  async enter() {
    super.enter();
    const fields = await fieldsOf("/tokenize");
    if (!fields) {
      fill(this.result, h("p", { class: "notice" }, "This server cannot show tokens: it has no route /tokenize."));
      return;
    }
    try {
      fill(this.picker, (await models()).map(({ id }) => h("option", { value: id }, id)));
      await this.show();
    } catch (error) {
      fill(this.result, h("p", { class: "notice error" }, messageOf(error)));
    }
  }

  later() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.show(), 150);
  }

  async show() {
    const asked = (this.asked = Symbol());
    try {
      const tokens = (await tokenize(this.text.value, this.picker.value, true)) ?? [];
      if (asked !== this.asked) return;
      const chars = [...this.text.value].length;
      this.count.textContent = `${plural(tokens.length, "token")} for ${plural(chars, "character")}${tokens.length > MOST ? `; the first ${MOST} are shown` : ""}`;
      fill(this.result, h("ol", { class: "pieces", dir: "auto" }, tokens.slice(0, MOST).map(({ id, text }, index) =>
        h("li", { class: `piece c${index % 4}` }, h("span", { class: "piece-text" }, text.replaceAll("\n", "⏎") || "∅"), h("small", {}, id)))));
    } catch (error) {
      if (asked === this.asked) fill(this.result, h("p", { class: "notice error" }, messageOf(error)));
    }
  }
}
