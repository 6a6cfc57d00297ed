/** Text files that are dropped or pasted into a prompt. */

import { size } from "./text.js";

const MAX_BYTES = 2 * 1024 ** 2;

/**
 * The text of a file.
 *
 * @param {File} file
 * @returns {Promise<{ name: string, text: string }>}
 */
export async function readTextFile(file) {
  const name = file.name || "pasted.txt";
  if (/^(image|audio|video)\//.test(file.type)) {
    throw new Error(`${name}: the models on this server read text only, so ${file.type.split("/")[0]} files cannot be sent.`);
  }
  if (file.size > MAX_BYTES) throw new Error(`${name} has ${size(file.size)}; the limit is ${size(MAX_BYTES)}.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return { name, text };
  } catch {
    // The message below says it.
  }
  throw new Error(`${name} is not a text file in UTF-8.`);
}
