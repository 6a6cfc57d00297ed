/** The models of a server: where each is, what it takes of the memory, and buttons that load, unload and pin it. */

import { ApiError, json } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { toast } from "../feedback.js";
import { duration, messageOf, plural, size } from "../text.js";

/** @typedef {import("../api.js").Model} Model */
/** @typedef {{ model: string, weights: number, kv_live: number, kv_cached: number, kv_free: number, scratch: number }} ModelMemory */
/** @typedef {{ budget: number | null, used: number, models: ModelMemory[] }} Memory */

/** Parts of the memory in the order of the bar. */
const PARTS = /** @type {const} */ ([
  ["weights", "Weights"], ["kv_live", "Cache in use"], ["kv_cached", "Cached prefixes"], ["kv_free", "Free cache"], ["scratch", "Scratch"],
]);

export class ModelTable {
  /** @param {() => void} changed Called when a model was steered. */
  constructor(changed) {
    this.changed = changed;
    /** Whether the server lets this page steer models. */
    this.isAllowed = true;
    /** Models that are being steered from here. @type {Set<string>} */
    this.busy = new Set();
    /** @type {Map<string, { row: HTMLElement, signature: string }>} */
    this.rows = new Map();
    const head = ["Name", "State", "Context", "Memory", "Actions"].map((name, index) => h("th", { scope: "col", class: index === 2 || index === 3 ? "align-right" : "" }, name));
    this.body = h("tbody");
    this.memory = h("div", { class: "memory", hidden: true });
    this.refusal = h("p", { class: "notice", hidden: true });
    this.element = h("div", { class: "models" }, this.memory, this.refusal,
      h("div", { class: "table", tabIndex: 0, role: "region", "aria-label": "Models" }, h("table", { class: "model-table" }, h("thead", {}, h("tr", {}, head)), this.body)));
  }

  /** @param {Model[]} models @param {Memory | null} memory @param {boolean} canSteer */
  show(models, memory, canSteer) {
    const ids = new Set(models.map(({ id }) => id));
    for (const id of this.rows.keys()) if (!ids.has(id)) this.rows.delete(id);
    const rows = models.map((model) => this.row(model, memory?.models.find((part) => part.model === model.id), canSteer && this.isAllowed));
    // Rows that stay keep the focus of their buttons.
    if (rows.length !== this.body.children.length || rows.some((row, index) => this.body.children[index] !== row)) fill(this.body, rows);
    this.showMemory(memory);
  }

  /** @param {Model} model @param {ModelMemory | undefined} memory @param {boolean} canSteer */
  row(model, memory, canSteer) {
    const { id, kind, maxLength, state, facts } = model;
    const { meta = {}, parent } = facts;
    const known = this.rows.get(id);
    const { expires_in: _, ...shown } = meta;
    const signature = JSON.stringify([shown, maxLength, canSteer, this.busy.has(id), Math.round((meta.expires_in ?? -60) / 60), memory]);
    if (known?.signature === signature) return known.row;
    const about = [parent ? `preset of ${parent}` : kind, meta.architecture, meta.parameters && `${short(meta.parameters)} parameters`].filter(Boolean).join(" · ");
    const cells = [
      h("th", { scope: "row" }, h("span", { class: "model-name" }, id), h("small", {}, about)),
      h("td", {}, stateOf(model)),
      h("td", { class: "align-right", "data-label": "Context" }, maxLength.toLocaleString("en")),
      h("td", { class: "align-right", "data-label": "Memory" }, memoryOf(meta, memory)),
      h("td", { class: "model-actions" }, canSteer && !parent && this.actions(model)),
    ];
    const row = known?.row ?? h("tr", { "data-id": id });
    const focused = row.contains(document.activeElement) ? document.activeElement?.getAttribute("data-action") : null;
    fill(row, cells);
    if (focused) row.querySelector(`[data-action=${focused}]`)?.focus();
    row.dataset.state = state;
    this.rows.set(id, { row, signature });
    return row;
  }

  /** @param {Model} model */
  actions({ id, state, facts }) {
    const busy = this.busy.has(id);
    const there = state === "ready" || state === "draining";
    const pinned = Boolean(facts.meta?.pinned);
    const load = there
      ? h("button", { type: "button", "data-action": "load", disabled: busy || state === "draining", "aria-label": `Unload ${id}`, onclick: () => this.steer(id, "unload") }, "Unload")
      : h("button", { type: "button", "data-action": "load", disabled: busy || state === "loading", "aria-label": `Load ${id}`, onclick: () => this.steer(id, "load") }, "Load");
    const pin = h("button", {
      type: "button", "data-action": "pin", class: "pin", disabled: busy, "aria-pressed": String(pinned), "aria-label": `Keep ${id} in memory`,
      title: pinned ? "Stays in memory until it is unloaded by name. Press to let it leave." : "May leave memory when others need room. Press to keep it.",
      onclick: () => this.steer(id, "pin", { pin: !pinned }),
    }, icon("pin"), pinned ? "Pinned" : "Pin");
    return [load, pin];
  }

  /** @param {string} model @param {"load" | "unload" | "pin"} action @param {Record<string, unknown>} [fields] */
  async steer(model, action, fields = {}) {
    this.busy.add(model);
    this.changed();
    try {
      await json(`/admin/${action}`, { body: { model, ...fields } });
    } catch (error) {
      if (error instanceof ApiError && error.status === 403) this.refuse(error.message);
      else toast(`${model}: ${messageOf(error)}`, { error: true });
    }
    this.busy.delete(model);
    this.changed();
  }

  /** @param {string} why */
  refuse(why) {
    if (!this.isAllowed) return;
    this.isAllowed = false;
    this.refusal.hidden = false;
    this.refusal.textContent = `Models cannot be steered from here: ${why}`;
  }

  /** @param {Memory | null} memory */
  showMemory(memory) {
    this.memory.hidden = !memory;
    if (!memory) return;
    const sums = PARTS.map(([part, label]) => ({ part, label, bytes: memory.models.reduce((sum, model) => sum + (model[part] ?? 0), 0) }));
    const total = sums.reduce((sum, { bytes }) => sum + bytes, 0);
    const whole = Math.max(total, memory.budget ?? 0, 1);
    const bar = h("div", { class: "memory-bar", "aria-hidden": "true" }, sums.map(({ part, bytes }) => {
      const piece = h("span", { class: part });
      piece.style.setProperty("--part", String(bytes / whole));
      return piece;
    }));
    const legend = h("ul", {}, sums.filter(({ bytes }) => bytes).map(({ part, label, bytes }) => h("li", {}, h("span", { class: `swatch ${part}`, "aria-hidden": "true" }), `${label} `, h("strong", {}, size(bytes)))));
    fill(this.memory, h("p", { class: "row spread" }, h("span", {}, "Memory of models"),
      h("strong", {}, memory.budget ? `${size(total)} of ${size(memory.budget)}` : size(total))), bar, legend);
  }
}

/** @param {number} count */
function short(count) {
  const [value, unit] = count >= 1e9 ? [count / 1e9, "B"] : count >= 1e6 ? [count / 1e6, "M"] : [count / 1e3, "K"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)}${unit}`;
}

/** @param {Model} model */
function stateOf({ state, facts }) {
  const { progress, failure, running, waiting, pinned, expires_in: left } = facts.meta ?? {};
  const parts = [
    running ? `${plural(running, "request")}` : null, waiting ? `${waiting} waiting` : null,
    state === "ready" && !pinned && !running && typeof left === "number" ? `leaves in ${left < 60 ? "a minute" : duration(Math.round(left / 60) * 60_000).replace(/ 0 s$/, "")}` : null];
  const label = { absent: "Not in memory", loading: progress?.phase ? `Loading: ${progress.phase}, ${progress.percent} %` : "Loading", ready: "Ready", draining: "Draining", failed: "Failed" }[state] ?? state;
  const bar = state === "loading" && h("progress", { max: 100, value: progress?.percent ?? 0, "aria-label": "Loading" });
  return [h("span", { class: `state ${state}` }, label), bar, h("small", {}, parts.filter(Boolean).join(" · ")), failure && h("small", { class: "bad" }, failure)];
}

/** What a model takes, or would take if it were in memory. @param {any} meta @param {ModelMemory | undefined} memory */
function memoryOf(meta, memory) {
  if (memory) {
    const cache = memory.kv_live + memory.kv_cached + memory.kv_free;
    return [size(memory.weights + cache + memory.scratch), h("small", {}, `${size(memory.weights)} weights${cache ? `, ${size(cache)} cache` : ""}`)];
  }
  const need = meta.memory_bytes ?? meta.weight_bytes;
  return need ? [size(need), h("small", {}, "when loaded")] : "";
}
