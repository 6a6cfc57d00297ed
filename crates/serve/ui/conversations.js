/** All conversations: loaded, changed and saved record by record, and kept alike in all tabs. */

import * as database from "./database.js";
import { preference, setPreference } from "./preferences.js";
import { childrenOf } from "./tree.js";
import { title, uniqueId } from "./text.js";

/**
 * @typedef {import("./tree.js").Conversation} Conversation
 * @typedef {import("./tree.js").Message} Message
 * @typedef {import("./tree.js").Token} Token
 */

/** How long a deletion can be undone after a reload. */
const KEEP_DELETED = 24 * 3600 * 1000;

/** Fires `list` when the list changes, `conversation` when one does, `failure` when something cannot be saved. */
class Conversations extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, Conversation>} */
    this.all = new Map();
    this.channel = new BroadcastChannel("perihelion");
    this.channel.onmessage = ({ data }) => this.changedElsewhere(data);
  }

  async load() {
    const records = await database.all("conversations");
    const old = records.filter(({ deleted }) => deleted && Date.now() - deleted > KEEP_DELETED);
    if (old.length) await database.purge(old.map(({ id }) => id));
    for (const record of records) if (!record.deleted) this.all.set(record.id, record);
    this.dispatchEvent(new Event("list"));
  }

  /** @param {string} id */
  async changedElsewhere(id) {
    const record = await database.get("conversations", id);
    const known = this.all.get(id);
    // The branch that is shown here stays.
    if (record && !record.deleted) this.all.set(id, known ? Object.assign(known, record, { selected: known.selected }) : record);
    else this.all.delete(id);
    this.dispatchEvent(new Event("list"));
    this.dispatchEvent(new CustomEvent("conversation", { detail: { id, elsewhere: true } }));
  }

  /** @returns {Conversation[]} Newest first. */
  list() {
    return [...this.all.values()].sort((a, b) => b.changed - a.changed);
  }

  /** @param {string} conversation @returns {Promise<Map<string, Message>>} */
  async messages(conversation) {
    const messages = await database.messagesOf(conversation);
    return new Map(messages.map((message) => [message.id, message]));
  }

  /** @param {Partial<Conversation>} [given] @returns {Promise<Conversation>} */
  async create(given = {}) {
    const now = Date.now();
    const { id = uniqueId() } = given;
    const options = structuredClone(preference("options", {}));
    /** @type {Conversation} */
    const conversation = { id, title: "New chat", created: now, changed: now, system: preference("system", ""), options, selected: {}, ...given };
    this.all.set(id, conversation);
    await this.save("conversations", conversation, id);
    this.dispatchEvent(new Event("list"));
    return conversation;
  }

  /**
   * Changes fields of a conversation; other tabs may change others at the same time.
   *
   * @param {string} id
   * @param {Partial<Conversation>} patch
   */
  async update(id, patch) {
    const current = this.all.get(id);
    if (current) Object.assign(current, { ...patch, selected: { ...current.selected, ...patch.selected } });
    this.dispatchEvent(new Event("list"));
    await this.guarded(() => database.update("conversations", id, (record) =>
      ({ ...record, ...patch, selected: { ...record.selected, ...patch.selected } })));
    this.channel.postMessage(id);
  }

  /** @param {Message} message */
  async addMessage(message) {
    await this.saveMessage(message);
    const conversation = this.all.get(message.conversation);
    /** @type {Partial<Conversation>} */
    const patch = { changed: Date.now(), selected: { [message.parent ?? "root"]: message.id } };
    if (conversation && !conversation.renamed && message.role === "user" && !message.parent) patch.title = title(message.text || message.files?.[0].name || "");
    await this.update(message.conversation, patch);
  }

  /** @param {Message} message */
  saveMessage(message) {
    message.saved = Date.now();
    return this.save("messages", message, message.conversation);
  }

  /** @param {string} id @param {Token[]} tokens @param {string} conversation */
  saveTokens(id, tokens, conversation) {
    return this.save("tokens", { id, tokens }, conversation);
  }

  /** @param {string} id @returns {Promise<Token[]>} */
  async tokens(id) {
    return (await database.get("tokens", id))?.tokens ?? [];
  }

  /** @param {string} store @param {any} record @param {string} conversation */
  async save(store, record, conversation) {
    await this.guarded(() => database.put(store, record));
    this.channel.postMessage(conversation);
  }

  /** Says once that nothing can be saved; the page goes on. @param {() => Promise<unknown>} write */
  async guarded(write) {
    try {
      await write();
    } catch (error) {
      const full = error instanceof DOMException && error.name === "QuotaExceededError";
      const message = full ? "The disk is full, so new text is not saved. Export it, or delete old chats."
        : `New text cannot be saved: ${error instanceof Error ? error.message : error}`;
      this.dispatchEvent(new CustomEvent("failure", { detail: message }));
    }
  }

  /** @param {string} id */
  async remove(id) {
    const record = this.all.get(id);
    this.all.delete(id);
    this.dispatchEvent(new Event("list"));
    await database.update("conversations", id, (stored) => ({ ...stored, deleted: Date.now() }));
    this.channel.postMessage(id);
    return async () => {
      await database.update("conversations", id, ({ deleted, ...stored }) => stored);
      if (record) this.all.set(id, record);
      this.dispatchEvent(new Event("list"));
      this.channel.postMessage(id);
    };
  }

  /**
   * Copies a branch into a new conversation.
   *
   * @param {Conversation} conversation
   * @param {Message[]} path
   */
  async fork(conversation, path) {
    const { system, options } = conversation;
    const copy = await this.create({ title: `${conversation.title} (fork)`.slice(0, 80), renamed: true, system, options: structuredClone(options) });
    /** @type {string | null} */
    let parent = null;
    for (const message of path) {
      const tokens = message.role === "assistant" ? await this.tokens(message.id) : [];
      const id = uniqueId();
      await database.put("messages", { ...message, id, parent, conversation: copy.id, state: message.state === "streaming" ? "interrupted" : message.state });
      if (tokens.length) await database.put("tokens", { id, tokens });
      parent = id;
    }
    this.channel.postMessage(copy.id);
    return copy;
  }

  /**
   * The ids of conversations whose title or messages contain a text.
   *
   * @param {string} text
   */
  async search(text) {
    const wanted = text.toLowerCase();
    const found = new Set(this.list().filter(({ title }) => title.toLowerCase().includes(wanted)).map(({ id }) => id));
    await database.transaction("messages", "readonly", (transaction) => new Promise((resolve, reject) => {
      const request = transaction.objectStore("messages").openCursor();
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor) return resolve(undefined);
        const { conversation, text, deleted } = cursor.value;
        if (!deleted && !found.has(conversation) && text.toLowerCase().includes(wanted)) found.add(conversation);
        cursor.continue();
      };
    }));
    return found;
  }

  /** Remembers what new conversations begin with. @param {Conversation} conversation */
  remember({ options, system }) {
    const { seed, ...rest } = options;
    setPreference("options", rest);
    setPreference("system", system);
  }

  /** The newest message of the selected branch. @param {Conversation} conversation @param {Map<string, Message>} messages */
  lastOf(conversation, messages) {
    /** @type {Message | null} */
    let last = null;
    for (;;) {
      const children = childrenOf(messages.values(), last?.id ?? null);
      if (!children.length) return last;
      last = children.find(({ id }) => id === conversation.selected[last?.id ?? "root"]) ?? children[children.length - 1];
    }
  }
}

export const conversations = new Conversations();
