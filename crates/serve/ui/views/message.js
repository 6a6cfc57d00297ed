/** A message: its text, its branches, and everything that can be done with it. */

import { running } from "../answer.js";
import { conversations } from "../conversations.js";
import { fill, h, icon, iconButton } from "../dom.js";
import { menuButton } from "../menu.js";
import { codeBlock, Markdown } from "../markdown/render.js";
import { formatJson, isJson } from "../json-text.js";
import { copy, duration, plural, rate } from "../text.js";
import { isSendKey } from "./composer.js";
import { tokenView } from "./token-view.js";

/**
 * @typedef {import("../tree.js").Message} Message
 * @typedef {import("../tree.js").Token} Token
 *
 * @typedef {object} Actions
 * @property {(message: Message, step: number) => void} switchBranch
 * @property {(message: Message, text: string, answer: boolean) => void} edit
 * @property {(message: Message) => void} regenerate
 * @property {(message: Message) => void} proceed
 * @property {(message: Message, prefix: string, kept: Token[]) => void} take
 * @property {(message: Message) => void} fork
 * @property {(message: Message) => void} quote
 * @property {(message: Message) => void} remove
 * @property {(message: Message) => void} inspect
 */

/** Files longer than this are shown in part. */
const PREVIEW = 4000;

export class MessageView {
  /** @param {Message} message @param {Actions} actions */
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.rendered = false;
    this.mode = "text";
    /** The text that is shown as JSON. @type {string | null} */
    this.json = null;
    const user = message.role === "user";
    this.signature = "";
    this.body = h("div", { class: "body" });
    this.reasoning = h("details", { class: "reasoning", hidden: true }, h("summary", {}), h("div", { class: "reasoning-text", dir: "auto" }));
    this.notices = h("div", { class: "notices" });
    this.foot = h("footer", {});
    this.name = h("h2", { class: user ? "visually-hidden" : "name" }, user ? "You" : String(message.request?.model ?? "Assistant"));
    this.element = h("article", { class: `message ${message.role}`, tabIndex: -1, "data-id": message.id, "aria-label": user ? "Your message" : "Answer" },
      this.name, !user && this.reasoning, this.body, this.notices, this.foot);
    this.markdown = new Markdown();
    this.siblings = [message];
    this.last = false;
  }

  /**
   * @param {Message} message The message as it is now.
   * @param {Message[]} siblings
   * @param {boolean} last
   */
  set(message, siblings, last) {
    this.message = message;
    this.siblings = siblings;
    this.last = last;
    this.element.classList.toggle("last", last);
    if (this.rendered) this.update();
  }

  render() {
    if (this.rendered) return;
    this.rendered = true;
    this.showBody();
    this.update();
  }

  showBody() {
    this.mode = "text";
    const { message } = this;
    if (message.role === "user") {
      fill(this.body, (message.files ?? []).map(fileView), h("p", { class: "said", dir: "auto" }, message.text));
    } else {
      this.json = null;
      this.showAnswer();
    }
  }

  /** Shows the text of an answer: Markdown, or JSON as code. */
  showAnswer() {
    const { text, state, request } = this.message;
    const streaming = state === "streaming";
    const json = isJson(text, streaming, request?.response_format) ? text : null;
    if (json === null) {
      this.markdown.update(text, streaming);
      if (this.body.lastChild !== this.markdown.element) fill(this.body, this.markdown.element);
    } else if (json !== this.json || !streaming) {
      const code = formatJson(json);
      if (this.body.querySelector("code")?.textContent !== code) fill(this.body, codeBlock({ text: code, language: "json", open: streaming }, streaming));
    }
    this.json = json;
  }

  /** Shows what changed. */
  update() {
    const { message } = this;
    const streaming = message.state === "streaming";
    this.element.classList.toggle("streaming", streaming);
    if (message.role === "assistant") {
      if (message.request?.model) this.name.textContent = String(message.request.model);
      if (this.mode === "text") this.showAnswer();
      this.showReasoning();
    }
    if (streaming && this.shownState === "streaming") this.showProgress();
    else this.showRest();
    this.shownState = message.state;
  }

  /** Builds what surrounds the text only if it changed, so that buttons keep the focus. */
  showRest() {
    const { state, error, stats, ignored, toolCalls } = this.message;
    const signature = JSON.stringify([state, error, stats, ignored, toolCalls, this.siblings.map(({ id }) => id)]);
    if (signature === this.signature) return;
    this.signature = signature;
    this.showNotices();
    this.showFoot();
  }

  showReasoning() {
    const { reasoning, reasoningTime, text, state } = this.message;
    this.reasoning.hidden = !reasoning;
    if (!reasoning) return;
    const thinking = state === "streaming" && !text;
    const [summary, content] = this.reasoning.children;
    summary.textContent = thinking ? "Thinking…" : `Thought for ${duration(reasoningTime ?? 0)}`;
    if (content.textContent.length !== reasoning.length) content.textContent = reasoning;
  }

  showNotices() {
    const { message } = this;
    const notes = [];
    for (const call of message.toolCalls ?? []) {
      notes.push(h("div", { class: "tool-call" }, h("strong", {}, `Calls ${call.name}`), codeBlock({ text: formatJson(call.arguments), language: "json" }, message.state === "streaming")));
    }
    const more = (/** @type {string} */ label) => h("button", { type: "button", class: "link proceed", onclick: () => this.actions.proceed(message) }, label);
    if (message.state === "length") notes.push(h("p", { class: "notice" }, "The answer reached its limit of tokens. ", more("Continue")));
    if (message.state === "stopped") notes.push(h("p", { class: "notice" }, "Stopped. ", more("Continue")));
    if (message.state === "interrupted") notes.push(h("p", { class: "notice" }, "The page was closed during this answer. ", more("Continue")));
    if (message.state === "failed") {
      notes.push(h("p", { class: "notice error", role: "alert" }, message.error ?? "The answer failed.", " ",
        message.text ? more("Continue") : h("button", { type: "button", class: "link", onclick: () => this.actions.proceed(message) }, "Try again")));
    }
    if (message.ignored) notes.push(h("p", { class: "notice" }, `This server has no use for: ${message.ignored}`));
    fill(this.notices, notes);
  }

  /** The speed of an answer that runs. */
  showProgress() {
    const answer = running.get(this.message.id);
    if (!answer || !this.stats) return;
    const seconds = (answer.lastAt - answer.firstAt) / 1000;
    this.stats.textContent = !answer.firstAt ? "Waiting for the first token"
      : seconds > 0.2 ? `${rate((answer.received - 1) / seconds)} · ${plural(answer.received, "token")}` : plural(answer.received, "token");
  }

  showFoot() {
    const { message, actions } = this;
    const assistant = message.role === "assistant";
    const streaming = message.state === "streaming";
    const tools = h("div", { class: "tools", role: "group", "aria-label": "Actions" });
    if (this.siblings.length > 1) tools.append(this.branches());
    if (!streaming) {
      tools.append(iconButton("copy", "Copy", (event) => this.copy(event)));
      if (assistant) tools.append(iconButton("again", "Regenerate", () => actions.regenerate(message)));
      tools.append(iconButton("edit", "Edit", () => this.edit()));
      if (assistant) tools.append((this.tokenButton = iconButton("heat", "Token probabilities", () => this.toggleTokens(), { "aria-pressed": String(this.mode === "tokens") })));
      tools.append(menuButton("More actions", () => this.moreActions()));
    }
    this.stats = h("p", { class: "stats" });
    fill(this.foot, tools, assistant && this.stats);
    if (streaming) this.showProgress();
    else if (assistant) fill(this.stats, this.statistics());
  }

  /** @returns {import("../menu.js").MenuItem[]} */
  moreActions() {
    const { message, actions } = this;
    const ofAnswers = /** @type {const} */ ([
      { label: "Continue this answer", icon: "forward", run: () => actions.proceed(message) },
      { label: "Request and reproducibility", icon: "code", run: () => actions.inspect(message) }]);
    return [
      ...(message.role === "assistant" ? ofAnswers : []),
      { label: "New chat from here", icon: "fork", run: () => actions.fork(message) },
      { label: "Quote", icon: "quote", run: () => actions.quote(message) },
      { label: "Delete", icon: "trash", danger: true, run: () => actions.remove(message) }];
  }

  branches() {
    const index = this.siblings.findIndex(({ id }) => id === this.message.id);
    const count = this.siblings.length;
    const step = (/** @type {number} */ by) => this.actions.switchBranch(this.message, by);
    return h("div", { class: "branches", role: "group", "aria-label": "Versions of this message" },
      iconButton("left", "Previous version", () => step(-1), { disabled: index === 0 }),
      h("span", { "aria-label": `Version ${index + 1} of ${count}` }, `${index + 1}/${count}`),
      iconButton("right", "Next version", () => step(1), { disabled: index === count - 1 }));
  }

  statistics() {
    const { stats, request, edited } = this.message;
    if (!stats) return edited ? ["Edited"] : [];
    const speed = stats.elapsed > 0 && stats.tokens > 1 ? rate((stats.tokens - 1) / (stats.elapsed / 1000)) : null;
    const prompt = stats.promptTokens !== undefined
      ? `${plural(stats.promptTokens, "prompt token")}${stats.cachedTokens ? `, ${stats.cachedTokens} cached` : ""}` : null;
    const parts = [speed, plural(stats.tokens, "token"), `first after ${duration(stats.firstToken)}`, prompt,
      request?.seed !== undefined && `seed ${request.seed}`];
    return [parts.filter(Boolean).join(" · ")];
  }

  /** @param {MouseEvent} event */
  async copy(event) {
    const button = /** @type {HTMLElement} */ (event.currentTarget);
    const copied = await copy(this.message.text);
    fill(button, icon(copied ? "check" : "close"));
    setTimeout(() => fill(button, icon("copy")), 1500);
  }

  async toggleTokens() {
    const { message, actions } = this;
    this.tokenButton?.setAttribute("aria-pressed", String(this.mode !== "tokens"));
    if (this.mode === "tokens") {
      this.showBody();
      return;
    }
    const tokens = running.get(message.id)?.tokens ?? (await conversations.tokens(message.id));
    const from = message.tokensFrom ?? 0;
    this.mode = "tokens";
    if (!tokens.length) {
      fill(this.body, h("p", { class: "notice" }, "No probabilities were recorded for this answer. Turn on “Token probabilities” in the settings and regenerate it."), this.markdown.element);
    } else {
      const given = message.text.slice(0, from);
      const view = tokenView(tokens, (prefix, kept) => actions.take(message, given + prefix, kept));
      fill(this.body, given && h("p", { class: "given muted", dir: "auto" }, given), view);
    }
  }

  edit() {
    const { message, actions } = this;
    const user = message.role === "user";
    this.mode = "edit";
    const field = h("textarea", { class: "edit", dir: "auto", "aria-label": user ? "Edit your message" : "Edit the answer", value: message.text });
    const leave = () => {
      this.showBody();
      this.element.focus();
    };
    const save = (/** @type {boolean} */ answer) => {
      leave();
      actions.edit(message, field.value, answer);
    };
    field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") leave();
      else if (isSendKey(event)) save(user);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const buttons = user
      ? [h("button", { type: "button", class: "primary", onclick: () => save(true) }, "Send")]
      : [h("button", { type: "button", class: "primary", onclick: () => save(false) }, "Save"),
        h("button", { type: "button", onclick: () => save(true) }, "Save and continue")];
    fill(this.body, field, h("div", { class: "edit-buttons" }, buttons, h("button", { type: "button", onclick: leave }, "Cancel"),
      h("span", { class: "muted" }, "The version before stays as a branch.")));
    field.style.height = `${Math.min(field.scrollHeight + 4, innerHeight * 0.5)}px`;
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

/** @param {{ name: string, text: string }} file */
function fileView({ name, text }) {
  const cut = text.length > PREVIEW ? `${text.slice(0, PREVIEW)}\n…` : text;
  return h("details", { class: "file" }, h("summary", {}, name), h("pre", { tabIndex: 0 }, cut));
}
