/** Conversations as JSON and Markdown files. Imported files are checked field by field: they may come from anywhere. */

import { conversations } from "./conversations.js";
import * as database from "./database.js";
import { contentOf, selectedPath } from "./tree.js";
import { uniqueId } from "./text.js";

/**
 * @typedef {import("./tree.js").Conversation} Conversation
 * @typedef {import("./tree.js").Message} Message
 */

const FORMAT = "perihelion-conversations";

/** @param {Conversation[]} chosen */
export async function toJson(chosen) {
  const exported = [];
  for (const conversation of chosen) {
    const messages = [...(await conversations.messages(conversation.id)).values()].filter(({ deleted }) => !deleted);
    exported.push({ ...conversation, messages });
  }
  return JSON.stringify({ format: FORMAT, version: 1, conversations: exported }, null, 1);
}

/** The selected branch as Markdown. @param {Conversation} conversation */
export async function toMarkdown(conversation) {
  const messages = await conversations.messages(conversation.id);
  const parts = [`# ${conversation.title}`];
  if (conversation.system) parts.push(`## System\n\n${conversation.system}`);
  for (const { message } of selectedPath(conversation, messages.values())) {
    parts.push(`## ${message.role === "user" ? "You" : String(message.request?.model ?? "Assistant")}\n\n${contentOf(message)}`);
  }
  return `${parts.join("\n\n")}\n`;
}

/**
 * Adds the conversations of a file. They get new ids, so that nothing is overwritten.
 *
 * @param {string} text
 * @returns {Promise<number>} How many there were.
 */
export async function fromJson(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`The file is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error(`The file is not an export of this page: "format" is not "${FORMAT}".`);
  }
  let count = 0;
  for (const given of file.conversations) {
    const id = uniqueId();
    const { messages, ids } = readMessages(given?.messages, id);
    await database.put("messages", ...messages);
    const selected = Object.fromEntries(Object.entries(object(given?.selected)).flatMap(([parent, child]) => {
      const [from, to] = [parent === "root" ? "root" : ids.get(parent), ids.get(String(child))];
      return from && to ? [[from, to]] : [];
    }));
    await conversations.create({
      id,
      title: string(given?.title).slice(0, 200) || "Imported chat",
      renamed: true,
      created: number(given?.created) ?? Date.now(),
      changed: number(given?.changed) ?? Date.now(),
      system: string(given?.system),
      options: readOptions(given?.options),
      selected,
    });
    count++;
  }
  return count;
}

/**
 * @param {unknown} given
 * @param {string} conversation
 * @returns {{ messages: Message[], ids: Map<string, string> }}
 */
function readMessages(given, conversation) {
  const list = Array.isArray(given) ? given.filter((message) => message && typeof message === "object") : [];
  const ids = new Map(list.map((message) => [string(message.id), uniqueId()]));
  const messages = list.map((message) => {
    /** @type {Message} */
    const read = {
      id: /** @type {string} */ (ids.get(string(message.id))),
      conversation,
      parent: message.parent === null ? null : ids.get(string(message.parent)) ?? null,
      role: message.role === "assistant" ? "assistant" : "user",
      text: string(message.text),
      created: number(message.created) ?? Date.now(),
    };
    if (read.role === "assistant") {
      const states = ["done", "length", "stopped", "failed", "interrupted"];
      read.state = /** @type {any} */ (states.includes(message.state) ? message.state : "interrupted");
      read.request = readOptions(message.request);
      if (message.reasoning) read.reasoning = string(message.reasoning);
      if (message.error) read.error = string(message.error);
      if (message.system) read.system = string(message.system);
      read.prefill = number(message.prefill) ?? 0;
    }
    if (Array.isArray(message.files)) {
      read.files = message.files.map((/** @type {any} */ file) => ({ name: string(file?.name), text: string(file?.text) }));
    }
    return read;
  });
  return { messages, ids };
}

/** Settings that are sent to the server: plain JSON of known names. @param {unknown} given */
function readOptions(given) {
  const names = ["model", "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "stop", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "response_format", "schema", "reasoning", "reasoning_effort", "chat_template_kwargs", "logprobs", "top_logprobs"];
  return Object.fromEntries(Object.entries(object(given)).filter(([name]) => names.includes(name)));
}

/** @param {unknown} value @returns {Record<string, unknown>} */
function object(value) {
  return value && typeof value === "object" && !Array.isArray(value) ? /** @type {any} */ (value) : {};
}

/** @param {unknown} value */
function string(value) {
  return typeof value === "string" ? value : "";
}

/** @param {unknown} value */
function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}
