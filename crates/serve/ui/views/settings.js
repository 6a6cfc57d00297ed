/** The panel with the system prompt and everything that is sent along with a conversation. */

import { renderPrompt } from "../api.js";
import { fill, h, icon, iconButton } from "../dom.js";
import { openDialog, toast } from "../feedback.js";
import { preference, setPreference } from "../preferences.js";
import { messageOf, randomSeed } from "../text.js";

/** name, label, step, least, most, what it does */
const NUMBERS = /** @type {const} */ ([
  ["temperature", "Temperature", 0.05, 0, 5, "0 takes the likeliest token"],
  ["top_p", "Top p", 0.01, 0, 1, "Only the likeliest tokens with this total probability"],
  ["top_k", "Top k", 1, -1, undefined, "Only this many tokens; -1 is all"],
  ["min_p", "Min p", 0.01, 0, 1, "Only tokens this many times as likely as the likeliest"],
  ["max_tokens", "Most tokens", 1, 1, undefined, "The answer ends here at the latest"],
]);

const PENALTIES = /** @type {const} */ ([
  ["repetition_penalty", "Repetition", 0.05, 0, undefined, "Divides the logits of tokens that occurred"],
  ["presence_penalty", "Presence", 0.1, -2, 2, "Taken off once a token stands in the answer"],
  ["frequency_penalty", "Frequency", 0.1, -2, 2, "Taken off for each time it stands there"],
]);

export class Settings {
  /** @param {{ change: () => void, close: () => void, prompt: () => Record<string, any> }} actions */
  constructor(actions) {
    this.actions = actions;
    /** @type {Record<string, any>} */
    this.options = {};
    this.system = "";
    /** @type {Record<string, any>} */
    this.fields = {};
    this.element = h("aside", { class: "settings", "aria-label": "Settings", hidden: true });
    this.build();
  }

  build() {
    const number = ([name, label, step, least, most, help]) => this.number(name, label, step, least, most, help);
    this.systemField = h("textarea", { id: "system", rows: 4, dir: "auto", oninput: () => this.changed() });
    this.seedField = h("input", { id: "option-seed", type: "text", inputMode: "numeric", placeholder: "random", oninput: () => this.changed() });
    this.seedLock = h("button", { type: "button", class: "icon-button", "aria-pressed": "false", onclick: () => this.lockSeed() });
    this.stopField = h("textarea", { id: "stop", rows: 2, placeholder: "One per line", oninput: () => this.changed() });
    this.schemaField = h("textarea", { id: "schema", rows: 5, class: "mono", spellcheck: false, placeholder: '{ "type": "object" }', "aria-describedby": "schema-problem", oninput: () => this.changed() });
    this.schemaProblem = h("p", { class: "problem", id: "schema-problem", role: "status" });
    this.probabilities = h("input", { id: "probabilities", type: "checkbox", onchange: () => this.changed() });
    this.presets = h("select", { "aria-label": "Preset", onchange: () => this.usePreset() });
    this.facts = h("p", { class: "muted facts" });
    fill(this.element,
      h("header", {}, h("h2", {}, "Settings"), iconButton("close", "Close the settings", () => this.actions.close())),
      h("div", { class: "settings-body" },
        h("label", { class: "field", for: "system" }, "System prompt", this.systemField),
        h("h3", {}, "Sampling"),
        h("p", { class: "muted" }, "An empty field takes the model's own value, which it shows."),
        NUMBERS.map(number),
        h("div", { class: "number" }, h("label", { for: "option-seed" }, "Seed", h("small", {}, "The same seed gives the same answer")),
          h("span", { class: "seed" }, this.seedField, this.seedLock)),
        h("label", { class: "field", for: "stop" }, "Stop at", this.stopField),
        h("details", {}, h("summary", {}, "Penalties"), PENALTIES.map(number)),
        h("h3", {}, "Output"),
        h("label", { class: "check", for: "probabilities" }, this.probabilities, "Token probabilities"),
        h("label", { class: "field", for: "schema" }, "JSON schema", this.schemaField), this.schemaProblem,
        h("h3", {}, "Presets"),
        h("div", { class: "row" }, this.presets,
          h("button", { type: "button", onclick: () => this.savePreset() }, "Save"),
          iconButton("trash", "Delete the preset", () => this.removePreset())),
        h("button", { type: "button", class: "preview", onclick: () => this.preview() }, "Preview the prompt"),
        this.facts));
    this.showPresets();
  }

  /** @param {string} name @param {string} label @param {number} step @param {number} least @param {number | undefined} most @param {string} help */
  number(name, label, step, least, most, help) {
    const id = `option-${name}`;
    const field = h("input", { id, type: "number", step, min: least, ...(most === undefined ? {} : { max: most }), placeholder: "model", inputMode: "decimal", oninput: () => this.changed() });
    this.fields[name] = field;
    return h("div", { class: "number" }, h("label", { for: id }, label, h("small", {}, help)), field);
  }

  /** @param {Record<string, any>} options @param {string} system */
  set(options, system) {
    this.options = options;
    this.system = system;
    this.systemField.value = system;
    for (const [name, field] of Object.entries(this.fields)) field.value = options[name] ?? "";
    this.seedField.value = options.seed ?? "";
    this.stopField.value = (options.stop ?? []).join("\n");
    this.schemaField.value = options.schema ?? "";
    this.probabilities.checked = options.probabilities !== false;
    this.showLock();
    this.checkSchema();
  }

  /** @param {import("../api.js").Model | undefined} model */
  setModel(model) {
    const defaults = model?.facts.meta?.sampling ?? {};
    for (const [name, field] of Object.entries(this.fields)) {
      const value = defaults[name];
      field.placeholder = typeof value === "number" ? String(Number(value.toPrecision(6))) : name === "max_tokens" ? "context" : "model";
    }
    this.facts.textContent = model ? `${model.id} takes up to ${model.maxLength.toLocaleString("en")} tokens, prompt and answer together.` : "";
  }

  changed() {
    const { options } = this;
    for (const [name, field] of Object.entries(this.fields)) {
      if (field.value === "" || field.validity.badInput) delete options[name];
      else options[name] = Number(field.value);
      field.toggleAttribute("aria-invalid", !field.validity.valid && !field.validity.stepMismatch);
    }
    const seed = this.seedField.value.trim();
    options.seed = /^\d{1,15}$/.test(seed) ? Number(seed) : undefined;
    if (document.activeElement === this.seedField) options.seedLocked = options.seed !== undefined;
    options.stop = this.stopField.value.split("\n").filter(Boolean);
    options.schema = this.schemaField.value;
    options.probabilities = this.probabilities.checked;
    this.system = this.systemField.value;
    this.showLock();
    this.checkSchema();
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.actions.change(), 200);
  }

  checkSchema() {
    const text = this.schemaField.value.trim();
    this.schemaProblem.textContent = "";
    if (!text) return;
    try {
      const schema = JSON.parse(text);
      if (schema === null || typeof schema !== "object" || Array.isArray(schema)) this.schemaProblem.textContent = "A schema is a JSON object.";
    } catch (error) {
      this.schemaProblem.textContent = messageOf(error);
    }
  }

  lockSeed() {
    const { options } = this;
    options.seedLocked = !options.seedLocked;
    if (options.seedLocked && options.seed === undefined) options.seed = randomSeed();
    this.seedField.value = options.seed ?? "";
    this.showLock();
    this.actions.change();
  }

  showLock() {
    const locked = Boolean(this.options.seedLocked);
    const label = locked ? "Use a new seed for each answer" : "Keep this seed";
    this.seedLock.setAttribute("aria-pressed", String(locked));
    this.seedLock.setAttribute("aria-label", label);
    this.seedLock.title = label;
    fill(this.seedLock, icon(locked ? "lock" : "unlock"));
  }

  /** Shows the seed of the answer that runs, ready to be locked. @param {number} seed */
  showSeed(seed) {
    this.options.seed = seed;
    this.seedField.value = String(seed);
  }

  focus() {
    this.systemField.focus();
  }

  /** @returns {Record<string, { options: Record<string, any>, system: string }>} */
  storedPresets() {
    return preference("presets", {});
  }

  showPresets(chosen = "") {
    const names = Object.keys(this.storedPresets()).sort();
    fill(this.presets, h("option", { value: "" }, names.length ? "Choose a preset" : "No presets yet"), names.map((name) => h("option", { value: name }, name)));
    this.presets.value = chosen;
  }

  usePreset() {
    const preset = this.storedPresets()[this.presets.value];
    if (!preset) return;
    const { model } = this.options;
    this.set({ ...structuredClone(preset.options), model }, preset.system);
    this.actions.change();
  }

  async savePreset() {
    const name = h("input", { id: "preset-name", required: true, maxLength: 60, value: this.presets.value });
    const form = h("form", { method: "dialog" }, h("label", { class: "field", for: "preset-name" }, "Name", name),
      h("footer", {}, h("button", { type: "submit", value: "ok", class: "primary" }, "Save")));
    const { closed } = openDialog("Save a preset", [form]);
    name.focus();
    if ((await closed) !== "ok" || !name.value.trim()) return;
    const { model, ...options } = this.options;
    setPreference("presets", { ...this.storedPresets(), [name.value.trim()]: { options, system: this.system } });
    this.showPresets(name.value.trim());
  }

  removePreset() {
    const name = this.presets.value;
    const { [name]: removed, ...rest } = this.storedPresets();
    if (!removed) return;
    setPreference("presets", rest);
    this.showPresets();
    toast("The preset is deleted.", { action: "Undo", run: () => { setPreference("presets", { ...rest, [name]: removed }); this.showPresets(); } });
  }

  async preview() {
    try {
      const prompt = await renderPrompt(this.actions.prompt());
      const text = prompt === null ? h("p", {}, "This server cannot show prompts: it has no route /apply-template.") : h("pre", { class: "raw", tabIndex: 0 }, prompt);
      openDialog("Prompt", [text], { wide: true });
    } catch (error) {
      toast(messageOf(error), { error: true });
    }
  }
}
