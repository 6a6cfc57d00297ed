/** Has the server answer: sends the conversation, follows the stream, and saves the text each second. */

import { ApiError, events, send } from "./api.js";
import { conversations } from "./conversations.js";
import { ancestors, contentOf } from "./tree.js";
import { messageOf, randomSeed } from "./text.js";
import { reasoningFields } from "./views/reasoning.js";

/**
 * @typedef {import("./tree.js").Conversation} Conversation
 * @typedef {import("./tree.js").Message} Message
 * @typedef {import("./tree.js").Token} Token
 */

const SAVE_EVERY = 1000;
/** Tokens are many more bytes than text, so they are saved less often. */
const SAVE_TOKENS_EVERY = 5000;
/** Alternatives of each token that are asked for. */
const ALTERNATIVES = 5;

/** The answers that this tab receives, by the id of their message. @type {Map<string, Answer>} */
export const running = new Map();

/**
 * The fields of a request apart from its messages. An empty option is left to the server.
 *
 * @param {Record<string, any>} options
 */
export function requestOf(options) {
  /** @type {Record<string, any>} */
  const request = {};
  for (const name of ["model", "temperature", "top_p", "top_k", "min_p", "max_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty"]) {
    if (options[name] !== undefined && options[name] !== null && options[name] !== "") request[name] = options[name];
  }
  if (options.stop?.length) request.stop = options.stop;
  request.seed = options.seedLocked && Number.isSafeInteger(options.seed) ? options.seed : randomSeed();
  if (options.probabilities !== false) Object.assign(request, { logprobs: true, top_logprobs: ALTERNATIVES });
  if (options.schema?.trim()) {
    const schema = JSON.parse(options.schema);
    request.response_format = { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
  }
  return { ...request, ...reasoningFields(options.reasoning) };
}

/**
 * The whole body that an answer was, or is, asked for with.
 *
 * @param {Map<string, Message>} messages
 * @param {Message} message
 */
export function bodyOf(messages, message) {
  const list = ancestors(messages, message).map((earlier) => ({ role: earlier.role, content: contentOf(earlier) }));
  if (message.system) list.unshift({ role: /** @type {any} */ ("system"), content: message.system });
  const prefill = message.text.slice(0, message.prefill ?? 0);
  /** @type {Record<string, any>} */
  const body = { ...message.request, messages: list };
  if (prefill) {
    list.push({ role: "assistant", content: prefill });
    Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  }
  return { ...body, stream: true, stream_options: { include_usage: true } };
}

/** Fires `change` when the message has more, and `end` once it is saved for good. */
export class Answer extends EventTarget {
  /**
   * @param {Conversation} conversation
   * @param {Map<string, Message>} messages
   * @param {Message} message
   */
  constructor(conversation, messages, message) {
    super();
    this.conversation = conversation;
    this.messages = messages;
    this.message = message;
    this.stopper = new AbortController();
    /** @type {Token[]} */
    this.tokens = [];
    this.received = 0;
    this.startedAt = performance.now();
    this.firstAt = 0;
    this.lastAt = 0;
    this.reasoningFrom = 0;
    /** Whether the server went away. */
    this.lostConnection = false;
    /** The view that follows it. @type {object | null} */
    this.shownBy = null;
  }

  /**
   * Asks for the answer, or for more of it, and returns when it has ended in one way or another.
   *
   * @param {Record<string, any>} request
   * @param {Token[]} [tokens] Those of the text that is there.
   */
  async run(request, tokens = []) {
    const { message } = this;
    running.set(message.id, this);
    this.tokens = tokens;
    const covered = tokens.reduce((length, { text }) => length + text.length, 0);
    if (!tokens.length || (message.tokensFrom ?? 0) + covered !== message.text.length) {
      this.tokens = [];
      message.tokensFrom = message.text.length;
    }
    Object.assign(message, { state: "streaming", request, system: this.conversation.system, prefill: message.text.length });
    delete message.error;
    delete message.ignored;
    delete message.stats;
    const held = holdLock(message.id);
    const saving = setInterval(() => conversations.saveMessage(message), SAVE_EVERY);
    const savingTokens = setInterval(() => this.saveTokens(), SAVE_TOKENS_EVERY);
    try {
      await conversations.saveMessage(message);
      await this.follow();
    } catch (error) {
      this.fail(error);
    } finally {
      clearInterval(saving);
      clearInterval(savingTokens);
      this.countStats();
      await this.saveTokens();
      await conversations.saveMessage(message);
      running.delete(message.id);
      held();
      this.dispatchEvent(new Event("end"));
    }
  }

  stop() {
    this.stopper.abort();
  }

  async follow() {
    this.startedAt = performance.now();
    const body = bodyOf(this.messages, this.message);
    const response = await send("/v1/chat/completions", { body, signal: this.stopper.signal });
    // An effort that is the model's own anyway changes nothing, and the reader need not know.
    const ignored = response.headers.get("x-peri-ignored")?.split(", ").filter((name) => name !== "reasoning_effort").join(", ");
    if (ignored) this.message.ignored = ignored;
    for await (const batch of events(response)) {
      for (const event of batch) this.take(event);
      this.dispatchEvent(new Event("change"));
    }
    if (this.message.state === "streaming") this.message.state = "done";
  }

  /** @param {any} event */
  take(event) {
    const { message } = this;
    if (event.usage) {
      this.usage = event.usage;
    }
    const choice = event.choices?.[0];
    if (!choice) return;
    const delta = choice.delta ?? {};
    const entries = choice.logprobs?.content ?? [];
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (reasoning || delta.content || entries.length || delta.tool_calls) {
      this.lastAt = performance.now();
      this.firstAt ||= this.lastAt;
      this.received += entries.length || 1;
    }
    if (reasoning) {
      this.reasoningFrom ||= this.lastAt;
      message.reasoning = (message.reasoning ?? "") + reasoning;
      message.reasoningTime = this.lastAt - this.reasoningFrom;
    }
    if (typeof delta.content === "string") message.text += delta.content;
    for (const entry of reasoning ? [] : entries) this.tokens.push(tokenOf(entry));
    for (const call of delta.tool_calls ?? []) this.takeToolCall(call);
    if (choice.finish_reason) message.state = choice.finish_reason === "length" ? "length" : "done";
  }

  /** @param {any} call */
  takeToolCall(call) {
    const calls = (this.message.toolCalls ??= []);
    const known = (calls[call.index ?? 0] ??= { name: "", arguments: "" });
    known.name += call.function?.name ?? "";
    known.arguments += call.function?.arguments ?? "";
  }

  /** @param {unknown} error */
  fail(error) {
    const { message } = this;
    if (this.stopper.signal.aborted) {
      message.state = "stopped";
      return;
    }
    message.state = "failed";
    message.error = messageOf(error);
    if (error instanceof ApiError && error.param) message.error += ` (field: ${error.param})`;
    if (error instanceof ApiError && error.retryAfter) message.error += ` Try again in ${error.retryAfter} s.`;
    if (error instanceof ApiError && error.status === 0) this.lostConnection = true;
  }

  /** Counts of the answer so far. */
  countStats() {
    if (!this.firstAt) return;
    const { usage } = this;
    this.message.stats = {
      firstToken: this.firstAt - this.startedAt,
      elapsed: this.lastAt - this.firstAt,
      tokens: usage?.completion_tokens ?? this.received,
      promptTokens: usage?.prompt_tokens,
      cachedTokens: usage?.prompt_tokens_details?.cached_tokens,
    };
  }

  async saveTokens() {
    if (this.tokens.length) await conversations.saveTokens(this.message.id, this.tokens, this.message.conversation);
  }
}

/** @param {any} entry @returns {Token} */
function tokenOf(entry) {
  return { ...choiceOf(entry), top: (entry.top_logprobs ?? []).map(choiceOf) };
}

/** Bytes are kept only of tokens that are not whole characters. @param {any} choice */
function choiceOf({ token, logprob, bytes }) {
  const text = String(token);
  return text.includes("\ufffd") && Array.isArray(bytes) ? { text, logprob, bytes } : { text, logprob };
}

/** Shows other tabs that this one receives the answer. @param {string} id @returns {() => void} */
function holdLock(id) {
  if (!navigator.locks) return () => {};
  let release = () => {};
  const held = new Promise((resolve) => (release = () => resolve(undefined)));
  navigator.locks.request(`answer:${id}`, () => held);
  return release;
}

/**
 * Whether no tab receives an answer any more that is marked as running.
 *
 * @param {Message} message
 */
export async function isOrphaned(message) {
  if (message.state !== "streaming" || running.has(message.id)) return false;
  if (!navigator.locks) return Date.now() - (message.saved ?? 0) > 5 * SAVE_EVERY;
  const { held = [] } = await navigator.locks.query();
  return !held.some(({ name }) => name === `answer:${message.id}`);
}

/**
 * Asks for the same answer again and compares, to the first difference.
 *
 * @param {Map<string, Message>} messages
 * @param {Message} message
 * @param {(same: number, total: number) => void} progress
 * @param {AbortSignal} signal
 * @returns {Promise<{ same: boolean, length: number, expected: string, got: string }>}
 */
export async function runAgain(messages, message, progress, signal) {
  const expected = message.text.slice(message.prefill ?? 0);
  const body = bodyOf(messages, message);
  let got = "";
  const response = await send("/v1/chat/completions", { body, signal });
  for await (const batch of events(response)) {
    for (const event of batch) got += event.choices?.[0]?.delta?.content ?? "";
    progress(got.length, expected.length);
    // An answer that was stopped is compared as far as it goes.
    if (["stopped", "failed", "interrupted"].includes(message.state ?? "") && got.length >= expected.length) {
      got = got.slice(0, expected.length);
      break;
    }
  }
  let length = 0;
  while (length < expected.length && expected[length] === got[length]) length++;
  return { same: got === expected, length, expected, got };
}
