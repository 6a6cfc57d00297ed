/** A conversation is a tree: editing a message adds a sibling, so nothing that follows is lost. */

/**
 * How an answer ended: `done` by the model, `length` by a limit, `stopped` by the reader, `failed` by an error,
 * `interrupted` if its tab closed.
 *
 * @typedef {"streaming" | "done" | "length" | "stopped" | "failed" | "interrupted"} State
 *
 * @typedef {object} Token One token of an answer: text, log-probability, alternatives, bytes if the text is not whole.
 * @property {string} text
 * @property {number} logprob
 * @property {{ text: string, logprob: number, bytes?: number[] }[]} top
 * @property {number[]} [bytes]
 *
 * @typedef {object} Stats
 * @property {number} firstToken Milliseconds from the request to the first token.
 * @property {number} elapsed Milliseconds from the first to the last token.
 * @property {number} tokens Tokens of the answer in the last request.
 * @property {number} [promptTokens]
 * @property {number} [cachedTokens]
 *
 * @typedef {object} Message
 * @property {string} id
 * @property {string} conversation
 * @property {string | null} parent
 * @property {"user" | "assistant"} role
 * @property {string} text
 * @property {number} created
 * @property {number} [saved]
 * @property {boolean} [deleted]
 * @property {State} [state]
 * @property {string} [reasoning]
 * @property {number} [reasoningTime] Milliseconds.
 * @property {{ name: string, arguments: string }[]} [toolCalls]
 * @property {string} [error]
 * @property {string} [ignored] Fields that the server named in `x-peri-ignored`.
 * @property {boolean} [edited]
 * @property {Record<string, any>} [request] The last request without its messages.
 * @property {string} [system] The system prompt of the last request.
 * @property {number} [prefill] Characters of the answer that the last request gave.
 * @property {number} [tokensFrom] The character at which the tokens begin.
 * @property {Stats} [stats]
 * @property {{ name: string, text: string }[]} [files]
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {boolean} [renamed]
 * @property {number} created
 * @property {number} changed
 * @property {number} [deleted]
 * @property {string} system
 * @property {Record<string, any>} options
 * @property {Record<string, string>} selected The child that is shown of each message, or of `root`.
 */

/**
 * The shown children of a message, oldest first.
 *
 * @param {Iterable<Message>} messages
 * @param {string | null} parent
 * @returns {Message[]}
 */
export function childrenOf(messages, parent) {
  const children = [];
  for (const message of messages) if (message.parent === parent && !message.deleted) children.push(message);
  return children.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

/**
 * The messages on the selected branch, and the siblings of each.
 *
 * @param {Conversation} conversation
 * @param {Iterable<Message>} messages
 * @returns {{ message: Message, siblings: Message[] }[]}
 */
export function selectedPath(conversation, messages) {
  /** @type {Map<string | null, Message[]>} */
  const byParent = new Map();
  for (const message of messages) {
    if (message.deleted) continue;
    const siblings = byParent.get(message.parent);
    if (siblings) siblings.push(message);
    else byParent.set(message.parent, [message]);
  }
  const path = [];
  const seen = new Set();
  let siblings = byParent.get(null);
  let parent = "root";
  while (siblings && !seen.has(parent)) {
    seen.add(parent);
    siblings.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
    const chosen = conversation.selected[parent];
    const message = siblings.find(({ id }) => id === chosen) ?? siblings[siblings.length - 1];
    path.push({ message, siblings });
    parent = message.id;
    siblings = byParent.get(parent);
  }
  return path;
}

/**
 * The ancestors of a message, oldest first, without itself.
 *
 * @param {Map<string, Message>} messages
 * @param {Message} message
 * @returns {Message[]}
 */
export function ancestors(messages, message) {
  const path = [];
  const seen = new Set([message.id]);
  let parent = message.parent;
  while (parent && messages.has(parent) && !seen.has(parent)) {
    seen.add(parent);
    const next = /** @type {Message} */ (messages.get(parent));
    path.unshift(next);
    parent = next.parent;
  }
  return path;
}

/**
 * A message as the server is to see it, with its files before its text.
 *
 * @param {Message} message
 */
export function contentOf(message) {
  const files = (message.files ?? []).map(({ name, text }) => {
    const longest = Math.max(2, ...Array.from(text.matchAll(/^`{3,}/gm), ([run]) => run.length));
    const fence = "`".repeat(longest + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}\n\n`;
  });
  return files.join("") + message.text;
}
