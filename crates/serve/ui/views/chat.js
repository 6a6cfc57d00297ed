/** A conversation: its messages, the answer that runs, and the composer. */

import { models, renderPrompt, send, tokenize } from "../api.js";
import { Answer, isOrphaned, requestOf, running } from "../answer.js";
import { conversations } from "../conversations.js";
import * as database from "../database.js";
import { fill, h, iconButton } from "../dom.js";
import { toMarkdown, toJson } from "../exchange.js";
import { toast } from "../feedback.js";
import { menuButton } from "../menu.js";
import { preference, setPreference } from "../preferences.js";
import { download, messageOf, uniqueId } from "../text.js";
import { childrenOf, contentOf, selectedPath } from "../tree.js";
import { Composer } from "./composer.js";
import { MessageView } from "./message.js";
import { ContextMeter } from "./meter.js";
import { ReasoningChoice } from "./reasoning.js";
import { inspect } from "./request.js";
import { Settings } from "./settings.js";

/**
 * @typedef {import("../tree.js").Conversation} Conversation
 * @typedef {import("../tree.js").Message} Message
 * @typedef {import("../tree.js").Token} Token
 */

/** Messages that are rendered at once; those before follow while the page is idle. */
const AT_ONCE = 10;
/** How close to its end a list is kept at the end. */
const NEAR = 80;

export class ChatView {
  /** @param {{ announcer: import("../announcer.js").Announcer, openSidebar: () => void }} page */
  constructor(page) {
    this.page = page;
    /** @type {Conversation | null} */
    this.conversation = null;
    /** @type {Map<string, Message>} */
    this.messages = new Map();
    /** @type {Map<string, MessageView>} */
    this.views = new Map();
    /** @type {import("../api.js").Model[]} */
    this.models = [];
    /** @type {Record<string, any>} */
    this.options = structuredClone(preference("options", {}));
    this.system = preference("system", "");
    this.stick = true;
    this.settings = new Settings({
      change: () => this.saveOptions(),
      close: () => this.toggleSettings(false),
      prompt: () => this.body(),
    });
    this.picker = h("select", { class: "model", "aria-label": "Model", onchange: () => this.pick() });
    this.title = h("h1", { class: "title", dir: "auto", tabIndex: 0, title: "Rename (Enter or double click)", ondblclick: () => this.rename(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && event.target === this.title && this.rename() });
    this.list = h("div", { class: "messages", role: "log", "aria-live": "off", "aria-label": "Conversation" });
    this.scroller = h("div", { class: "scroller", tabIndex: -1, onscroll: () => this.scrolled() }, this.list);
    this.toEnd = iconButton("down", "To the end", () => this.scrollToEnd(), { class: "to-end", hidden: true });
    this.reasoning = new ReasoningChoice(() => this.chooseReasoning());
    this.meter = new ContextMeter();
    /** Tokens of the conversation without the draft. */
    this.used = { tokens: 0, isExact: true };
    this.composer = new Composer({
      send: (text, files) => this.say(text, files),
      stop: () => this.stop(),
      model: () => this.picker.value || undefined,
      count: () => this.showContext(),
    }, this.reasoning.element, this.meter.element);
    this.menu = menuButton("More", () => [
      { label: "Rename", icon: "edit", run: () => this.rename() },
      { label: "Export as Markdown", icon: "save", run: () => this.exportAs("md") },
      { label: "Export as JSON", icon: "save", run: () => this.exportAs("json") },
      { label: "Delete", icon: "trash", danger: true, run: () => this.removeConversation() }]);
    this.settingsButton = iconButton("sliders", "Settings", () => this.toggleSettings(), { "aria-expanded": "false" });
    this.offline = h("p", { class: "offline", role: "status", hidden: true }, "The server does not answer. Your chats are saved; answers can be continued once it is back.");
    this.head = h("header", { class: "head" },
      iconButton("menu", "Chats", () => this.page.openSidebar(), { class: "narrow-only" }),
      this.title,
      this.picker, h("span", { class: "menu-place" }, this.menu), this.settingsButton);
    this.element = h("div", { class: "chat" },
      h("section", { class: "conversation", "aria-label": "Chat", ondragover: (/** @type {DragEvent} */ event) => this.drag(event), ondragleave: () => this.element.classList.remove("dropping"),
        ondrop: (/** @type {DragEvent} */ event) => this.drop(event) },
        this.head, this.offline, this.scroller, h("div", { class: "bottom" }, this.toEnd, this.composer.element)),
      this.settings.element);
    this.toggleSettings(preference("settings", false) && innerWidth > 1100);
    // The end stays in sight when the list grows, and when the composer takes room from it.
    const resized = new ResizeObserver(() => this.stick && this.pin());
    for (const element of [this.list, this.scroller]) resized.observe(element);
    conversations.addEventListener("conversation", (event) => this.changedElsewhere(/** @type {CustomEvent} */ (event).detail));
  }

  /** @param {string | null} id */
  async open(id) {
    const opening = (this.opening = Symbol());
    const conversation = id ? conversations.all.get(id) ?? null : null;
    const messages = conversation ? await conversations.messages(conversation.id) : new Map();
    if (opening !== this.opening) return;
    this.conversation = conversation;
    this.messages = messages;
    for (const message of messages.values()) {
      const answer = running.get(message.id);
      if (answer) messages.set(message.id, answer.message);
    }
    // The answers of this conversation go on with the same messages.
    for (const answer of running.values()) if (answer.conversation.id === id) answer.messages = messages;
    this.views.clear();
    this.options = conversation ? structuredClone(conversation.options) : structuredClone(preference("options", {}));
    this.system = conversation ? conversation.system : preference("system", "");
    this.settings.set(this.options, this.system);
    this.reasoning.set(this.options.reasoning);
    this.composer.open(conversation?.id ?? "new");
    this.showModels();
    this.show();
    this.stick = true;
    this.pin();
    await this.endOrphans();
  }

  /** Answers whose tab is gone can be continued. */
  async endOrphans() {
    const messages = this.messages;
    for (const message of messages.values()) {
      if (!(await isOrphaned(message))) continue;
      const stored = await database.get("messages", message.id);
      if (stored?.state !== "streaming") continue;
      Object.assign(message, stored, { state: "interrupted" });
      await conversations.saveMessage(message);
      if (messages === this.messages) this.show();
    }
  }

  /** @param {{ id: string }} detail */
  async changedElsewhere({ id }) {
    if (this.conversation?.id !== id || this.reloading) return;
    this.reloading = true;
    await new Promise((resolve) => setTimeout(resolve, 100));
    this.reloading = false;
    if (this.conversation?.id !== id) return;
    if (!conversations.all.has(id)) return void (location.hash = "#/");
    const stored = await conversations.messages(id);
    if (this.conversation?.id !== id) return;
    for (const [key, message] of stored) if (!running.has(key)) this.messages.set(key, message);
    // A branch that another tab chose is its own matter.
    this.show();
  }

  /** Shows the selected branch; views of messages that stay are kept. */
  show() {
    const path = this.conversation ? selectedPath(this.conversation, this.messages.values()) : [];
    const views = path.map(({ message, siblings }, index) => {
      let view = this.views.get(message.id);
      if (!view) {
        view = new MessageView(message, this.actions());
        this.views.set(message.id, view);
      }
      view.set(message, siblings, index === path.length - 1);
      return view;
    });
    for (const view of views.slice(-AT_ONCE)) view.render();
    this.place(views.map(({ element }) => element));
    this.renderIdle(views);
    this.title.textContent = this.conversation?.title ?? "New chat";
    document.title = this.conversation ? `${this.conversation.title} – Perihelion` : "Perihelion";
    // A chat that has not begun has no name, and nothing to export or delete.
    this.menu.disabled = !this.conversation;
    const answer = this.runningAnswer();
    this.composer.setRunning(Boolean(answer));
    if (answer && answer.shownBy !== this) this.follow(answer);
    if (!answer && this.models.length) this.countContext();
  }

  /** Puts elements into the list, and moves only those that are not in their place. @param {Element[]} elements */
  place(elements) {
    if (!elements.length) return fill(this.list, welcome());
    const wanted = new Set(elements);
    for (const child of [...this.list.children]) if (!wanted.has(child)) child.remove();
    for (const [index, element] of elements.entries()) {
      if (this.list.children[index] !== element) this.list.insertBefore(element, this.list.children[index] ?? null);
    }
  }

  /** Renders earlier messages from the end upwards. @param {MessageView[]} views */
  renderIdle(views) {
    const waiting = views.filter(({ rendered }) => !rendered);
    if (!waiting.length) return;
    const idle = window.requestIdleCallback ?? ((/** @type {any} */ run) => setTimeout(() => run({ timeRemaining: () => 8 }), 16));
    idle((/** @type {IdleDeadline} */ deadline) => {
      do waiting.pop()?.render();
      while (waiting.length && deadline.timeRemaining() > 4);
      if (views.every(({ message }) => this.views.has(message.id))) this.renderIdle(waiting);
    });
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    const distance = scrollHeight - scrollTop - clientHeight;
    // Text that is added moves the end away; only the reader moves the position back.
    if (scrollTop < (this.scrollTop ?? 0) - 2 && distance > NEAR) this.stick = false;
    else if (distance < NEAR) this.stick = true;
    this.scrollTop = scrollTop;
    this.toEnd.hidden = this.stick;
  }

  pin() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.scrollTop = this.scroller.scrollTop;
  }

  scrollToEnd() {
    this.stick = true;
    this.toEnd.hidden = true;
    this.pin();
    this.composer.field.focus();
  }

  // Actions of messages

  /** @returns {import("./message.js").Actions} */
  actions() {
    return {
      switchBranch: (message, step) => this.switchBranch(message, step),
      edit: (message, text, answer) => this.edit(message, text, answer),
      regenerate: (message) => this.regenerate(message),
      proceed: (message) => this.proceed(message),
      take: (message, prefix, kept) => this.take(message, prefix, kept),
      fork: (message) => this.fork(message),
      quote: (message) => this.quote(message),
      remove: (message) => this.removeMessage(message),
      inspect: (message) => inspect(this.messages, message),
    };
  }

  /** @param {string} text @param {{ name: string, text: string }[]} files */
  async say(text, files) {
    if (!this.conversation) {
      const { system } = this;
      const options = structuredClone(this.options);
      this.conversation = await conversations.create({ system, options });
      setPreference("draft.new", undefined);
      this.composer.draft = this.conversation.id;
      history.replaceState(null, "", `#/c/${this.conversation.id}`);
      window.dispatchEvent(new Event("hashchange"));
    }
    const last = conversations.lastOf(this.conversation, this.messages);
    const message = this.newMessage("user", last?.id ?? null, text);
    if (files.length) message.files = files;
    await this.addMessage(message);
    this.stick = true;
    await this.answer(message.id);
  }

  /** @param {"user" | "assistant"} role @param {string | null} parent @param {string} text @returns {Message} */
  newMessage(role, parent, text) {
    const conversation = /** @type {Conversation} */ (this.conversation).id;
    // Siblings are ordered by time.
    const newest = Math.max(0, ...childrenOf(this.messages.values(), parent).map(({ created }) => created + 1));
    return { id: uniqueId(), conversation, parent, role, text, created: Math.max(Date.now(), newest) };
  }

  /** @param {Message} message */
  async addMessage(message) {
    this.messages.set(message.id, message);
    const conversation = /** @type {Conversation} */ (this.conversation);
    conversation.selected[message.parent ?? "root"] = message.id;
    const saved = conversations.addMessage(message);
    this.show();
    await saved;
  }

  /**
   * Makes an answer to a message, from a text that is there already.
   *
   * @param {string} parent
   * @param {string} [text]
   * @param {Token[]} [tokens]
   */
  async answer(parent, text = "", tokens = []) {
    const message = this.newMessage("assistant", parent, text);
    if (tokens.length) message.tokensFrom = text.length - tokens.reduce((length, token) => length + token.text.length, 0);
    message.state = "streaming";
    await this.addMessage(message);
    await this.run(message, tokens);
  }

  /** @param {Message} message @param {Token[]} [tokens] */
  async run(message, tokens) {
    this.stop();
    let request;
    try {
      request = requestOf({ ...this.options, model: this.picker.value || undefined, reasoning: this.reasoning.value });
    } catch (error) {
      Object.assign(message, { state: "failed", error: `The JSON schema is not JSON: ${messageOf(error)}` });
      await conversations.saveMessage(message);
      return this.show();
    }
    this.settings.showSeed(request.seed);
    const conversation = /** @type {Conversation} */ (this.conversation);
    const answer = new Answer(conversation, this.messages, message);
    const finished = answer.run(request, tokens);
    this.page.announcer.begin(message.text.length);
    this.show();
    await finished;
    if (answer.lostConnection) this.waitForServer();
  }

  /** Shows an answer as it grows, at most once a frame. @param {Answer} answer */
  follow(answer) {
    answer.shownBy = this;
    let waiting = false;
    const draw = () => {
      waiting = false;
      // The end is shown once it is saved: "Continue" starts from what is stored, and never beside this run.
      if (answer.message.state !== "streaming") return;
      this.views.get(answer.message.id)?.update();
      if (this.runningAnswer() === answer) this.showContext(answer.received);
      this.page.announcer.follow(answer.message.text);
    };
    answer.addEventListener("change", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(draw);
    });
    answer.addEventListener("end", () => {
      const { text, state, error } = answer.message;
      const ending = { done: "End of the answer.", length: "The answer reached its limit.", stopped: "Stopped." }[state ?? ""] ?? error ?? "";
      this.page.announcer.end(text, ending);
      if (answer.conversation.id === this.conversation?.id) this.show();
    });
  }

  runningAnswer() {
    for (const answer of running.values()) if (answer.conversation.id === this.conversation?.id) return answer;
    return null;
  }

  stop() {
    const answer = this.runningAnswer();
    answer?.stop();
    return Boolean(answer);
  }

  /** @param {Message} message @param {number} step */
  async switchBranch(message, step) {
    const siblings = childrenOf(this.messages.values(), message.parent);
    const target = siblings[siblings.findIndex(({ id }) => id === message.id) + step];
    if (!target || !this.conversation) return;
    this.conversation.selected[message.parent ?? "root"] = target.id;
    this.stick = false;
    this.show();
    this.views.get(target.id)?.element.focus({ preventScroll: true });
    await conversations.update(this.conversation.id, { selected: { [message.parent ?? "root"]: target.id } });
  }

  /** @param {Message} message @param {string} text @param {boolean} answer */
  async edit(message, text, answer) {
    if (message.role === "user") {
      if (!text.trim() && !message.files?.length) return;
      const edited = this.newMessage("user", message.parent, text);
      if (message.files) edited.files = message.files;
      await this.addMessage(edited);
      if (answer) await this.answer(edited.id);
      return;
    }
    if (answer && message.parent) return this.answer(message.parent, text);
    const edited = { ...this.newMessage("assistant", message.parent, text), state: /** @type {const} */ ("done"), edited: true, request: message.request, prefill: text.length };
    await this.addMessage(edited);
  }

  /** @param {Message} message */
  async regenerate(message) {
    if (message.parent) await this.answer(message.parent);
  }

  /** @param {Message} message */
  async proceed(message) {
    await this.run(message, await conversations.tokens(message.id));
  }

  /** @param {Message} message @param {string} prefix @param {Token[]} kept */
  async take(message, prefix, kept) {
    if (message.parent) await this.answer(message.parent, prefix, kept);
  }

  /** @param {Message} message */
  async fork(message) {
    if (!this.conversation) return;
    const path = this.path();
    const until = path.slice(0, path.findIndex(({ id }) => id === message.id) + 1);
    const copy = await conversations.fork(this.conversation, until);
    location.hash = `#/c/${copy.id}`;
  }

  /** @param {Message} message */
  quote(message) {
    const selection = getSelection();
    const inside = selection && !selection.isCollapsed && this.views.get(message.id)?.element.contains(selection.anchorNode);
    const text = inside ? selection.toString() : contentOf(message);
    this.composer.insert(`${text.trim().split("\n").map((line) => `> ${line}`).join("\n")}\n\n`);
  }

  /** @param {Message} message */
  async removeMessage(message) {
    running.get(message.id)?.stop();
    const mark = async (/** @type {boolean} */ deleted) => {
      message.deleted = deleted;
      await conversations.saveMessage(message);
      this.show();
    };
    await mark(true);
    toast("The message and what follows it are deleted.", { action: "Undo", run: () => mark(false) });
  }

  // The conversation as a whole

  async removeConversation() {
    if (!this.conversation) return;
    this.stop();
    const { id, title } = this.conversation;
    const undo = await conversations.remove(id);
    location.hash = "#/";
    toast(`“${title}” is deleted.`, { action: "Undo", run: undo });
  }

  rename() {
    const { conversation } = this;
    if (!conversation || this.title.querySelector("input")) return;
    const field = h("input", { class: "rename", "aria-label": "Title", value: conversation.title, maxLength: 200 });
    let cancelled = false;
    field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      event.stopPropagation();
      if (event.isComposing) return;
      if (event.key === "Escape") cancelled = true;
      if (event.key === "Escape" || event.key === "Enter") field.blur();
    });
    field.addEventListener("blur", async () => {
      const title = field.value.trim();
      if (!cancelled && title) await conversations.update(conversation.id, { title, renamed: true });
      this.show();
    });
    fill(this.title, field);
    field.select();
  }

  /** @param {"md" | "json"} format */
  async exportAs(format) {
    const { conversation } = this;
    if (!conversation) return;
    const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chat";
    if (format === "md") download(`${name}.md`, "text/markdown", await toMarkdown(conversation));
    else download(`${name}.json`, "application/json", await toJson([conversation]));
  }

  /** @param {boolean} [open] */
  toggleSettings(open = this.settings.element.hidden) {
    this.settings.element.hidden = !open;
    this.settingsButton?.setAttribute("aria-expanded", String(open));
    setPreference("settings", open);
    if (open && this.element?.isConnected) this.settings.focus();
    else if (this.element?.isConnected) this.settingsButton.focus();
  }

  saveOptions() {
    this.options = this.settings.options;
    this.system = this.settings.system;
    this.reasoning.set(this.options.reasoning);
    this.keepOptions();
  }

  chooseReasoning() {
    this.options.reasoning = this.reasoning.wanted || undefined;
    this.settings.options.reasoning = this.options.reasoning;
    this.keepOptions();
  }

  // The context

  /** @param {number} [more] Tokens of the answer that runs. */
  showContext(more = 0) {
    const { tokens, isExact } = this.used;
    this.meter.set(tokens + this.composer.tokens + more, this.model()?.maxLength ?? 0, isExact && !more);
  }

  /** Counts the tokens of the shown branch: the server told them with the last answer, or counts the prompt again. */
  async countContext() {
    const path = this.path();
    const last = path[path.length - 1];
    // Another model has other tokens.
    const isOther = last?.request?.model !== undefined && last.request.model !== this.picker.value;
    const stats = last?.edited || isOther ? undefined : last?.stats;
    // Another tab receives this answer, and counts it in the end.
    if (last?.state === "streaming") return;
    const counted = JSON.stringify([last?.id, last?.text.length, stats, this.system.length, this.picker.value]);
    if (counted === this.counted) return this.showContext();
    this.counted = counted;
    if (!last || stats?.promptTokens !== undefined) this.used = { tokens: stats ? (stats.promptTokens ?? 0) + stats.tokens : 0, isExact: true };
    else {
      const used = await countPrompt(this.body());
      if (counted !== this.counted || this.runningAnswer()) return;
      this.used = used;
    }
    this.showContext();
  }

  keepOptions() {
    const { options, system, conversation } = this;
    conversations.remember({ .../** @type {any} */ (conversation), options, system });
    if (conversation) conversations.update(conversation.id, { options: structuredClone(options), system });
  }

  /** The messages of the shown branch. */
  path() {
    return this.conversation ? selectedPath(this.conversation, this.messages.values()).map(({ message }) => message) : [];
  }

  /** The body that the next answer would be asked for with. */
  body() {
    const path = this.path();
    const messages = path.map((message) => ({ role: String(message.role), content: contentOf(message) }));
    if (messages[messages.length - 1]?.role === "assistant" || !messages.length) {
      if (this.composer.field.value) messages.push({ role: "user", content: this.composer.field.value });
    }
    if (this.system) messages.unshift({ role: "system", content: this.system });
    return { model: this.picker.value || undefined, messages };
  }

  // Models and the server

  async loadModels() {
    try {
      this.models = await models();
      this.offline.hidden = true;
    } catch (error) {
      this.offline.hidden = false;
      this.waitForServer();
    }
    this.showModels();
  }

  showModels() {
    const able = this.models.filter(({ kind }) => kind === "text");
    const wanted = this.options.model;
    const names = able.map(({ id }) => id);
    if (wanted && !names.includes(wanted)) names.unshift(wanted);
    const options = names.map((id) => {
      const state = this.models.find((model) => model.id === id)?.state ?? "not on this server";
      return h("option", { value: id }, state === "ready" ? id : `${id} (${state})`);
    });
    fill(this.picker, options.length ? options : [h("option", { value: "" }, this.models.length ? "No model for text" : "No model")]);
    this.picker.value = wanted ?? names[0] ?? "";
    this.showModel();
  }

  /** The chosen model. */
  model() {
    return this.models.find(({ id }) => id === this.picker.value);
  }

  showModel() {
    this.settings.setModel(this.model());
    this.reasoning.setModel(this.model()?.id);
    if (this.models.length && !this.runningAnswer()) this.countContext();
  }

  pick() {
    this.options.model = this.picker.value;
    this.settings.options.model = this.picker.value;
    this.showModel();
    this.keepOptions();
  }

  /** Asks for the server until it is back. */
  async waitForServer() {
    if (this.waiting) return;
    this.waiting = true;
    this.offline.hidden = false;
    for (;;) {
      try {
        await send("/live", { quiet: true });
        break;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 1500));
      }
    }
    this.waiting = false;
    this.offline.hidden = true;
    const last = this.conversation && conversations.lastOf(this.conversation, this.messages);
    if (last?.state === "failed") toast("The server is back.", { action: "Continue", run: () => this.proceed(last) });
    await this.loadModels();
  }

  // Keys and files

  /** @param {KeyboardEvent} event @returns {boolean} Whether the key did something. */
  key(event) {
    const path = this.path();
    const answer = path.findLast(({ role }) => role === "assistant");
    const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest(".message"));
    const chosen = path.find(({ id }) => id === focused?.dataset.id);
    const idle = !this.runningAnswer();
    if (event.key === "r" && answer && idle) this.regenerate(answer);
    else if (event.key === "c" && answer && idle) this.proceed(answer);
    else if (event.key === "t" && answer && idle) this.views.get(answer.id)?.toggleTokens();
    else if (event.key === "e") {
      const own = chosen ?? path.findLast(({ role }) => role === "user");
      if (own) this.views.get(own.id)?.edit();
    } else if (event.key === "j" || event.key === "k") this.step(path, chosen, event.key === "j" ? 1 : -1);
    else if ((event.key === "[" || event.key === "]") && chosen) this.switchBranch(chosen, event.key === "]" ? 1 : -1);
    else if (event.key === "/") this.composer.field.focus();
    else if (event.key === ",") this.toggleSettings();
    else return false;
    return true;
  }

  /** @param {Message[]} path @param {Message | undefined} chosen @param {number} by */
  step(path, chosen, by) {
    const index = chosen ? path.indexOf(chosen) + by : by > 0 ? 0 : path.length - 1;
    const element = this.views.get(path[Math.min(path.length - 1, Math.max(0, index))]?.id)?.element;
    element?.focus();
    element?.scrollIntoView({ block: "nearest" });
  }

  /** @param {DragEvent} event */
  drag(event) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    this.element.classList.add("dropping");
  }

  /** @param {DragEvent} event */
  drop(event) {
    this.element.classList.remove("dropping");
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    this.composer.addFiles(event.dataTransfer.files);
  }
}

/** The tokens of a prompt, or about how many there are if the server does not say. @param {Record<string, any>} body */
async function countPrompt(body) {
  const about = { tokens: Math.ceil(JSON.stringify(body.messages).length / 4), isExact: false };
  try {
    const prompt = await renderPrompt(body);
    const tokens = prompt === null ? null : await tokenize(prompt, body.model);
    return tokens ? { tokens: tokens.length, isExact: true } : about;
  } catch {
    return about;
  }
}

function welcome() {
  return h("div", { class: "welcome" }, h("p", { class: "greeting" }, "Ask anything."),
    h("p", { class: "muted" }, "The model runs on this server. Chats stay in this browser. Press ? for the keyboard."));
}
