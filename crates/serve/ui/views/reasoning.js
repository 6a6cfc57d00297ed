/** The choice of whether, and how hard, a model reasons before it answers. */

import { abilities } from "../api.js";
import { fill, h } from "../dom.js";

/** @typedef {"" | "off" | "on" | "minimal" | "low" | "medium" | "high"} Reasoning */

/** @type {Record<string, string>} */
const LABELS = { "": "Reasoning: auto", off: "Reasoning: off", on: "Reasoning: on", low: "Reasoning: low", medium: "Reasoning: medium", high: "Reasoning: high" };

/**
 * What can be chosen for a chat template, apart from the model's own choice.
 *
 * @param {string} template Jinja.
 * @returns {Reasoning[]}
 */
export function reasoningChoices(template) {
  const canBeOff = /\benable_thinking\b|\bthinking is (?:not )?defined\b|\bnot thinking\b|\bif thinking\b/.test(template);
  const hasEfforts = /\breasoning_effort\b/.test(template);
  return [...(canBeOff ? /** @type {const} */ (["off"]) : []), ...(hasEfforts ? /** @type {const} */ (["low", "medium", "high"]) : canBeOff ? /** @type {const} */ (["on"]) : [])];
}

/**
 * The fields of a request for a choice.
 *
 * @param {unknown} choice
 * @returns {Record<string, unknown>}
 */
export function reasoningFields(choice) {
  if (choice === "on") return { chat_template_kwargs: { enable_thinking: true, thinking: true } };
  if (choice === "off") return { reasoning_effort: "none" };
  return choice ? { reasoning_effort: choice } : {};
}

export class ReasoningChoice {
  /** @param {() => void} change */
  constructor(change) {
    /** @type {Reasoning[]} */
    this.choices = [];
    /** What was chosen, whether the model can do it or not. */
    this.wanted = "";
    this.element = h("select", { class: "reasoning-choice", "aria-label": "Reasoning", title: "Whether the model reasons before it answers", hidden: true,
      onchange: () => { this.wanted = this.element.value; change(); } });
  }

  /** What the next request is to ask for. */
  get value() {
    return this.choices.includes(/** @type {any} */ (this.wanted)) ? this.wanted : "";
  }

  /** @param {unknown} wanted */
  set(wanted) {
    this.wanted = typeof wanted === "string" ? wanted : "";
    this.element.value = this.value;
  }

  /** @param {string | undefined} model */
  async setModel(model) {
    this.model = model;
    const { template } = model ? await abilities(model) : { template: "" };
    if (this.model !== model) return;
    const choices = reasoningChoices(template);
    if (choices.join() !== this.choices.join()) {
      this.choices = choices;
      fill(this.element, ["", ...choices].map((choice) => h("option", { value: choice }, LABELS[choice])));
    }
    this.element.hidden = !choices.length;
    this.element.value = this.value;
  }
}
