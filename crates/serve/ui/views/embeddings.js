/** Compares texts by their embeddings: a matrix of cosine similarities. */

import { json, models } from "../api.js";
import { fill, h } from "../dom.js";
import { messageOf } from "../text.js";
import { ToolView } from "./tool.js";

const MOST = 50;

/** @param {number[]} a @param {number[]} b */
function cosine(a, b) {
  let [product, left, right] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    product += a[i] * b[i];
    left += a[i] * a[i];
    right += b[i] * b[i];
  }
  return product / Math.sqrt(left * right || 1);
}

export class EmbeddingsView extends ToolView {
  /** @param {{ openSidebar: () => void }} page */
  constructor(page) {
    super(page, "Embeddings", "Write 2 to 50 texts, one per line. The table shows how similar each pair is, from -1 to 1.");
    this.picker = h("select", { id: "embedding-model" });
    this.texts = h("textarea", { id: "embedding-texts", rows: 8, dir: "auto", value: "A cat sits on the mat.\nA kitten rests on a rug.\nThe market fell by two percent.",
      onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.compare(); } });
    this.button = h("button", { type: "button", class: "primary", onclick: () => this.compare() }, "Compare");
    this.result = h("div", { class: "result", "aria-live": "polite" });
    this.content.append(
      h("label", { class: "field", for: "embedding-model" }, "Model", this.picker),
      h("label", { class: "field", for: "embedding-texts" }, "Texts", this.texts), this.button, this.result);
  }

  async enter() {
    super.enter();
    try {
      const able = (await models()).filter(({ kind }) => kind === "embedding");
      fill(this.picker, able.map(({ id }) => h("option", { value: id }, id)));
      this.button.disabled = !able.length;
      if (!able.length) fill(this.result, h("p", { class: "notice" }, "This server has no embedding model. Start it with one, for example ", h("code", {}, "peri serve sentence-transformers/all-MiniLM-L6-v2"), "."));
    } catch (error) {
      fill(this.result, h("p", { class: "notice error" }, messageOf(error)));
    }
  }

  async compare() {
    const texts = this.texts.value.split("\n").map((/** @type {string} */ text) => text.trim()).filter(Boolean);
    if (texts.length < 2 || texts.length > MOST) {
      fill(this.result, h("p", { class: "notice error" }, `Write 2 to ${MOST} lines; these are ${texts.length}.`));
      return;
    }
    this.button.disabled = true;
    try {
      const started = performance.now();
      const { data, usage } = await json("/v1/embeddings", { body: { model: this.picker.value, input: texts } });
      const vectors = data.map((/** @type {any} */ { embedding }) => embedding);
      fill(this.result, matrix(texts, vectors),
        h("p", { class: "muted" }, `${vectors[0].length} dimensions · ${usage?.prompt_tokens ?? "?"} tokens · ${Math.round(performance.now() - started)} ms`));
    } catch (error) {
      fill(this.result, h("p", { class: "notice error" }, messageOf(error)));
    }
    this.button.disabled = false;
  }
}

/** @param {string[]} texts @param {number[][]} vectors */
function matrix(texts, vectors) {
  const head = h("tr", {}, h("td", {}), texts.map((text, index) => h("th", { scope: "col", title: text }, index + 1)));
  const rows = texts.map((text, i) => h("tr", {},
    h("th", { scope: "row", dir: "auto", title: text }, h("span", {}, `${i + 1} `), text),
    texts.map((other, j) => {
      const value = cosine(vectors[i], vectors[j]);
      const cell = h("td", { title: `${text}\n${other}` }, value.toFixed(2));
      cell.style.setProperty("--part", String(Math.max(0, value)));
      return cell;
    })));
  return h("div", { class: "table", tabIndex: 0, role: "region", "aria-label": "Similarities" },
    h("table", { class: "matrix" }, h("thead", {}, head), h("tbody", {}, rows)));
}
