/** Answers that are JSON: how they are recognised, and written with one member on a line. */

/** Longer texts are not looked into. */
const MAX_LENGTH = 500_000;

/**
 * Whether an answer is shown as JSON: because it was asked for, or because it is an object or a list as a whole.
 *
 * @param {string} text
 * @param {boolean} growing
 * @param {any} [format] The `response_format` of its request.
 */
export function isJson(text, growing, format) {
  const start = text.trimStart()[0];
  if (start !== "{" && start !== "[") return false;
  if (growing) return /^json/.test(format?.type ?? "");
  if (text.length > MAX_LENGTH) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return /^json/.test(format?.type ?? "");
  }
}

/**
 * The same JSON with line breaks and indentation; also while it grows. Numbers and repeated names stay as they are, which
 * they would not if it were parsed.
 *
 * @param {string} text
 */
export function formatJson(text) {
  if (text.trim().includes("\n")) return text.trim();
  const out = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  const tokens = text.match(/"(?:\\.|[^"\\])*"?|[{}[\],:]|[^\s"{}[\],:]+/g) ?? [];
  for (const [index, token] of tokens.entries()) {
    const next = tokens[index + 1];
    if (token === "{" || token === "[") {
      depth++;
      out.push(token, next === "}" || next === "]" || next === undefined ? "" : line());
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      const before = tokens[index - 1];
      out.push(before === "{" || before === "[" ? "" : line(), token);
    } else out.push(token === "," ? token + line() : token === ":" ? ": " : token);
  }
  return out.join("");
}
