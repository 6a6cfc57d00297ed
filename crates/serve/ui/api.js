/** Requests to the server: JSON, errors in words, server-sent events, and the API key. */

import { preference, setPreference } from "./preferences.js";

/** An answer of the server that is an error, or none at all (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {{ code?: string, param?: string, retryAfter?: number }} [details]
   */
  constructor(status, message, details = {}) {
    super(message);
    this.status = status;
    this.code = details.code;
    this.param = details.param;
    this.retryAfter = details.retryAfter;
  }
}

/** @type {string | null} */
let key = preference("key", null);

/** @type {() => Promise<{ key: string, remember: boolean } | null>} */
let askForKey = async () => null;

/** @type {Promise<boolean> | undefined} */
let asking;

/**
 * Says how to ask the reader for a key when the server wants one.
 *
 * @param {typeof askForKey} ask
 */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Asks once, however many requests wait for the key. */
function needKey() {
  asking ??= askForKey().then((given) => {
    asking = undefined;
    if (!given) return false;
    key = given.key;
    setPreference("key", given.remember ? given.key : undefined);
    return true;
  });
  return asking;
}

/**
 * Sends a request. A refused key is asked for, and the request sent again.
 *
 * @param {string} path
 * @param {{ body?: unknown, method?: string, signal?: AbortSignal, quiet?: boolean }} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, { body, method, signal, quiet } = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      body: body === undefined ? undefined : JSON.stringify(body),
      headers,
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (response.status === 401 && !quiet && (await needKey())) return send(path, { body, method, signal, quiet });
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** @param {Response} response */
async function errorOf(response) {
  const text = await response.text().catch(() => "");
  const retryAfter = Number(response.headers.get("retry-after")) || undefined;
  try {
    const { error } = JSON.parse(text);
    const { message, code, param } = error;
    return new ApiError(response.status, String(message), { code, param, retryAfter });
  } catch {
    const message = text.slice(0, 300) || `The server answered ${response.status} ${response.statusText}`.trim();
    return new ApiError(response.status, message, { retryAfter });
  }
}

/**
 * @param {string} path
 * @param {Parameters<typeof send>[1]} [options]
 * @returns {Promise<any>}
 */
export async function json(path, options) {
  return (await send(path, options)).json();
}

/**
 * The data of server-sent events, until `[DONE]`.
 *
 * @param {Response} response
 * @returns {AsyncGenerator<any[]>} The events that arrived together.
 */
export async function* events(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const chunk = await read(reader);
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = /** @type {string} */ (lines.pop());
      const batch = [];
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") {
          if (batch.length) yield batch;
          return;
        }
        const event = JSON.parse(data);
        if (event.error) {
          if (batch.length) yield batch;
          throw new ApiError(500, String(event.error.message ?? event.error), event.error);
        }
        batch.push(event);
      }
      if (batch.length) yield batch;
    }
  } finally {
    // A reader that leaves early ends the answer on the server too.
    reader.cancel().catch(() => {});
  }
}

/** @param {ReadableStreamDefaultReader<Uint8Array>} reader */
async function read(reader) {
  let chunk;
  try {
    chunk = await reader.read();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The connection to the server broke.");
  }
  if (chunk.done) throw new ApiError(0, "The server ended the answer before it was complete.");
  return chunk.value;
}

/** @typedef {{ id: string, kind: "text" | "embedding" | "classifier", maxLength: number, state: string, facts: any }} Model */

/** @returns {Promise<Model[]>} */
export async function models() {
  const { data } = await json("/v1/models");
  return data.map((/** @type {any} */ model) => ({
    id: String(model.id),
    kind: model.meta?.kind ?? "text",
    maxLength: model.max_model_len ?? 0,
    state: String(model.meta?.state ?? "ready"),
    facts: model,
  }));
}

/** @typedef {{ template: string }} Abilities */

/** @type {Map<string, Promise<Abilities>>} */
const known = new Map();

/**
 * What the chat template of a model can do; nothing is known of it if the server does not show it.
 *
 * @param {string} model
 * @returns {Promise<Abilities>}
 */
export function abilities(model) {
  let found = known.get(model);
  if (!found) {
    found = json("/api/show", { body: { model }, quiet: true }).then(({ template }) => ({ template: String(template ?? "") })).catch(() => {
      known.delete(model);
      return { template: "" };
    });
    known.set(model, found);
  }
  return found;
}

/** @type {Promise<any> | undefined} */
let document_;

/** The server's OpenAPI document. */
export function openApi() {
  document_ ??= json("/openapi.json", { quiet: true }).catch(() => {
    document_ = undefined;
    return { paths: {} };
  });
  return document_;
}

/**
 * The names of the fields that a POST route takes, or null if the server does not have the route.
 *
 * @param {string} path
 * @returns {Promise<Set<string> | null>}
 */
export async function fieldsOf(path) {
  const document = await openApi();
  const operation = document.paths?.[path]?.post;
  if (!operation) return null;
  const names = new Set();
  /** @param {any} schema @param {number} depth */
  const collect = (schema, depth) => {
    if (!schema || depth > 6) return;
    if (schema.$ref) collect(document.components?.schemas?.[schema.$ref.split("/").pop()], depth + 1);
    for (const name of Object.keys(schema.properties ?? {})) names.add(name);
    for (const part of [...(schema.allOf ?? []), ...(schema.oneOf ?? []), ...(schema.anyOf ?? [])]) collect(part, depth + 1);
  };
  collect(operation.requestBody?.content?.["application/json"]?.schema, 0);
  return names;
}

/**
 * The tokens of a text, or null if the server has no tokenizer route.
 *
 * @param {string} text
 * @param {string} [model]
 * @param {boolean} [special] Whether those are added that the model wants around a text.
 * @returns {Promise<{ id: number, text: string }[] | null>}
 */
export async function tokenize(text, model, special = false) {
  const fields = await fieldsOf("/tokenize");
  if (!fields) return null;
  /** @type {Record<string, unknown>} */
  const body = { prompt: text };
  if (fields.has("with_pieces")) body.with_pieces = true;
  else if (fields.has("return_token_strs")) body.return_token_strs = true;
  if (fields.has("add_special_tokens")) body.add_special_tokens = special;
  if (model) body.model = model;
  const answer = await json("/tokenize", { body });
  return answer.tokens.map((/** @type {any} */ token, /** @type {number} */ index) =>
    typeof token === "object" ? { id: token.id, text: pieceText(token.piece) } : { id: token, text: String(answer.token_strs?.[index] ?? "") });
}

/** Parts of characters are shown as their bytes. @param {string | number[]} piece */
function pieceText(piece) {
  if (typeof piece === "string") return piece;
  return piece.map((byte) => `<${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
}

/**
 * The prompt that the model's template makes of messages, or null if the server has no such route.
 *
 * @param {Record<string, unknown>} body
 * @returns {Promise<string | null>}
 */
export async function renderPrompt(body) {
  if (!(await fieldsOf("/apply-template"))) return null;
  const answer = await json("/apply-template", { body });
  return String(answer.prompt ?? answer.text ?? JSON.stringify(answer));
}
