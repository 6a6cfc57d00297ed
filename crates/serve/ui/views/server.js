/** The state of the server: health, version, models, and graphs of its metrics. */

import { ApiError, json, models, openApi, send } from "../api.js";
import { fill, h } from "../dom.js";
import { duration, messageOf, plural, rate } from "../text.js";
import { ModelTable } from "./model-table.js";
import { ToolView } from "./tool.js";

const EVERY = 2000;
/** Points of a graph. */
const HISTORY = 60;
const MOST_REQUESTS = 200;

/** Names of metrics, and how they are shown. `true` draws the change per second. */
const GRAPHS = /** @type {const} */ ([
  ["vllm:num_requests_running", "Requests that run", false],
  ["vllm:num_requests_waiting", "Requests that wait", false],
  ["vllm:kv_cache_usage_perc", "Cache in use", false],
  ["vllm:generation_tokens_total", "Generated tokens", true],
  ["vllm:prompt_tokens_total", "Prompt tokens", true],
]);

/**
 * The sums of metrics over their labels.
 *
 * @param {string} text Metrics in Prometheus' text format.
 * @returns {Map<string, number>}
 */
export function parseMetrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+([^\s]+)/.exec(line);
    const value = match && Number(match[2]);
    if (match && Number.isFinite(value)) sums.set(match[1], (sums.get(match[1]) ?? 0) + value);
  }
  return sums;
}

export class ServerView extends ToolView {
  /** @param {{ openSidebar: () => void }} page */
  constructor(page) {
    super(page, "Server", "What runs, and how busy it is.");
    this.state = h("dl", { class: "facts-list" });
    this.graphs = h("div", { class: "graphs" });
    this.models = new ModelTable(() => this.refresh());
    this.requests = h("div");
    this.content.append(this.state, h("h2", {}, "Models"), this.models.element, h("h2", {}, "Activity"), this.graphs, this.requests);
    /** @type {Map<string, { time: number, value: number }[]>} */
    this.history = new Map();
    /** Routes that this page may not see. @type {Set<string>} */
    this.refused = new Set();
  }

  enter() {
    super.enter();
    this.leave();
    // A key may have been given since.
    this.refused.clear();
    this.refresh();
    this.timer = setInterval(() => document.visibilityState === "visible" && this.refresh(), EVERY);
  }

  leave() {
    clearInterval(this.timer);
  }

  async refresh() {
    const [health, version, list, document] = await Promise.allSettled([
      json("/health", { quiet: true }), json("/version", { quiet: true }), models(), openApi()]);
    const fact = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ kind = "") => [h("dt", {}, name), h("dd", { class: kind }, value)];
    const up = health.status === "fulfilled";
    fill(this.state,
      fact("State", up ? String(health.value.status ?? "ok") : messageOf(health.reason), up ? "good" : "bad"),
      fact("Version", version.status === "fulfilled" ? String(version.value.version) : "unknown"),
      fact("Address", location.origin));
    const paths = document.status === "fulfilled" ? document.value.paths ?? {} : {};
    if (list.status === "fulfilled") this.models.show(list.value, paths["/debug/memory"] ? await this.ofAdmin("/debug/memory") : null, Boolean(paths["/admin/load"]));
    if (paths["/metrics"]) await this.showMetrics();
    else fill(this.graphs, h("p", { class: "muted" }, "This server has no route /metrics."));
    if (paths["/admin/requests"]) await this.showRequests();
  }

  /** The answer of a route for those who run the server, if this page may see it. @param {string} path */
  async ofAdmin(path) {
    if (this.refused.has(path)) return null;
    try {
      return await json(path, { quiet: true });
    } catch (error) {
      if (error instanceof ApiError && [401, 403, 404].includes(error.status)) this.refused.add(path);
      return null;
    }
  }

  async showMetrics() {
    let sums;
    try {
      sums = parseMetrics(await (await send("/metrics", { quiet: true })).text());
    } catch (error) {
      fill(this.graphs, h("p", { class: "notice error" }, messageOf(error)));
      return;
    }
    const figures = [];
    for (const [name, label, perSecond] of GRAPHS) {
      const value = sums.get(name);
      if (value === undefined) continue;
      const points = this.history.get(name) ?? [];
      points.push({ time: performance.now(), value });
      this.history.set(name, points.slice(-HISTORY - 1));
      const values = perSecond
        ? points.slice(1).map((point, index) => Math.max(0, point.value - points[index].value) / ((point.time - points[index].time) / 1000))
        : points.map((point) => point.value);
      const last = values[values.length - 1] ?? 0;
      const text = perSecond ? rate(last) : name.endsWith("perc") ? `${Math.round(last * 100)} %` : String(last);
      figures.push(h("figure", {}, h("figcaption", {}, label), h("strong", {}, text), sparkline(values)));
    }
    fill(this.graphs, figures);
  }

  async showRequests() {
    const answer = await this.ofAdmin("/admin/requests");
    if (!answer) return fill(this.requests);
    // Without those of this page.
    const list = answer.requests.filter((/** @type {any} */ { model }) => model).slice(0, MOST_REQUESTS);
    const rows = list.map((/** @type {any} */ { id, model, route, prompt_tokens: prompt, generated_tokens: generated, seconds }) => h("tr", {},
      h("th", { scope: "row" }, id), h("td", {}, model, h("small", {}, route)), h("td", {}, `${plural(prompt, "token")} + ${generated}`, h("small", {}, duration(seconds * 1000))),
      h("td", {}, h("button", { type: "button", class: "link", "data-cancel": id, "aria-label": `Cancel ${id}`, onclick: () => send(`/admin/requests/${encodeURIComponent(id)}`, { method: "DELETE" }).catch(() => {}) }, "Cancel"))));
    const focused = this.requests.contains(document.activeElement) && /** @type {HTMLElement} */ (document.activeElement).dataset.cancel;
    const head = h("thead", { class: "visually-hidden" }, h("tr", {}, ["Request", "Model", "Tokens", "Action"].map((name) => h("th", { scope: "col" }, name))));
    fill(this.requests, h("h2", {}, "Requests now"), rows.length
      ? h("div", { class: "table", tabIndex: 0, role: "region", "aria-label": "Requests" }, h("table", { class: "requests" }, head, h("tbody", {}, rows))) : h("p", { class: "muted" }, "None."));
    if (focused) /** @type {HTMLElement | null} */ (this.requests.querySelector(`[data-cancel="${CSS.escape(focused)}"]`))?.focus();
  }
}

/** @param {number[]} values */
function sparkline(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${HISTORY} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(1e-9, ...values);
  const from = HISTORY - values.length;
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", values.map((value, index) => `${from + index},${19 - (value / most) * 18}`).join(" "));
  svg.append(line);
  return svg;
}
