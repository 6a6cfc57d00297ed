/** Where messages are written: a field that grows, files, and the button that sends or stops. */

import { tokenize } from "../api.js";
import { add, fill, h, icon, iconButton } from "../dom.js";
import { toast } from "../feedback.js";
import { readTextFile } from "../files.js";
import { preference, setPreference } from "../preferences.js";
import { messageOf, plural } from "../text.js";

/** Longer pasted text becomes a file. */
const LONG_PASTE = 8000;

/** Whether Enter sends: not while an input method composes, and not on touch keyboards without Shift. @param {KeyboardEvent} event */
export function isSendKey(event) {
  const composing = event.isComposing || event.keyCode === 229;
  if (event.key !== "Enter" || composing) return false;
  return event.ctrlKey || event.metaKey || (!event.shiftKey && !matchMedia("(pointer: coarse)").matches);
}

export class Composer {
  /**
   * @param {{ send: (text: string, files: { name: string, text: string }[]) => void, stop: () => void, model: () => string | undefined, count: (tokens: number) => void }} actions
   * @param {...Node} controls What stands below the field.
   */
  constructor(actions, ...controls) {
    this.actions = actions;
    this.draft = "new";
    /** @type {{ name: string, text: string, count?: string }[]} */
    this.files = [];
    this.field = h("textarea", {
      id: "composer", rows: 1, placeholder: "Message", "aria-label": "Message", dir: "auto", enterKeyHint: "enter",
      oninput: () => this.changed(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      onpaste: (/** @type {ClipboardEvent} */ event) => this.paste(event),
    });
    this.button = h("button", { type: "submit", class: "send", title: "Send" });
    this.chips = h("ul", { class: "files", "aria-label": "Files" });
    this.count = h("span", { class: "muted count" });
    this.tokens = 0;
    this.element = h("form", { class: "composer", onsubmit: (/** @type {Event} */ event) => this.submit(event) },
      this.chips, this.field,
      h("div", { class: "row" },
        iconButton("clip", "Add text files", () => this.choose()), controls[0], h("span", { class: "room" }), this.count, controls.slice(1), this.button));
    this.setRunning(false);
  }

  /** Shows what was written for a conversation before. @param {string} draft */
  open(draft) {
    this.draft = draft;
    this.field.value = preference(`draft.${draft}`, "");
    this.files = [];
    this.showFiles();
    this.show();
  }

  /** @param {boolean} running */
  setRunning(running) {
    this.running = running;
    const label = running ? "Stop the answer" : "Send";
    this.button.setAttribute("aria-label", label);
    this.button.title = running ? "Stop (Esc)" : "Send (Enter)";
    this.button.classList.toggle("stop", running);
    fill(this.button, icon(running ? "stop" : "send"));
    this.showState();
  }

  /** Nothing can be sent while there is nothing. */
  showState() {
    this.button.disabled = !this.running && !this.field.value.trim() && !this.files.length;
  }

  /** @param {Event} event */
  submit(event) {
    event.preventDefault();
    if (this.running) return this.actions.stop();
    const text = this.field.value;
    if (!text.trim() && !this.files.length) return this.field.focus();
    const files = this.files.map(({ name, text }) => ({ name, text }));
    this.field.value = "";
    this.files = [];
    this.showFiles();
    this.changed();
    this.actions.send(text, files);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!isSendKey(event)) return;
    event.preventDefault();
    // The answer that runs is stopped with Esc or the button; Enter keeps what was written.
    if (!this.running) this.element.requestSubmit();
  }

  changed() {
    clearTimeout(this.saving);
    const { draft } = this;
    this.saving = setTimeout(() => setPreference(`draft.${draft}`, this.field.value || undefined), 300);
    this.show();
  }

  /** Shows what follows from the text. */
  show() {
    this.grow();
    this.showState();
    clearTimeout(this.counting);
    this.count.textContent = "";
    if (!this.field.value && this.tokens) this.counted(0);
    if (this.field.value.length > 200) this.counting = setTimeout(() => this.showCount(), 500);
  }

  /** @param {number} tokens */
  counted(tokens) {
    this.tokens = tokens;
    this.actions.count(tokens);
  }

  async showCount() {
    const text = this.field.value;
    const count = await countTokens(text, this.actions.model());
    if (text !== this.field.value) return;
    this.count.textContent = inWords(count);
    this.counted(count.tokens);
  }

  grow() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
  }

  /** @param {string} text */
  insert(text) {
    this.field.focus();
    this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, "end");
    this.changed();
  }

  choose() {
    const input = h("input", { type: "file", multiple: true });
    input.onchange = () => this.addFiles(input.files);
    input.click();
  }

  /** @param {ClipboardEvent} event */
  paste(event) {
    const { files } = event.clipboardData ?? {};
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (files?.length) {
      event.preventDefault();
      this.addFiles(files);
    } else if (text.length > LONG_PASTE) {
      event.preventDefault();
      this.addFiles([new File([text], "pasted.txt", { type: "text/plain" })]);
    }
  }

  /** @param {Iterable<File>} files */
  async addFiles(files) {
    for (const file of files) {
      try {
        /** @type {{ name: string, text: string, count?: string }} */
        const read = await readTextFile(file);
        this.files.push(read);
        this.showFiles();
        read.count = inWords(await countTokens(read.text, this.actions.model()));
        this.showFiles();
      } catch (error) {
        toast(messageOf(error), { error: true });
      }
    }
    this.field.focus();
  }

  showFiles() {
    this.showState();
    fill(this.chips);
    this.chips.hidden = !this.files.length;
    for (const file of this.files) {
      const remove = iconButton("close", `Remove ${file.name}`, () => {
        this.files = this.files.filter((other) => other !== file);
        this.showFiles();
      });
      add(this.chips, [h("li", {}, h("span", { class: "file-name" }, file.name), h("span", { class: "muted" }, file.count ?? "…"), remove)]);
    }
  }
}

/** @param {string} text @param {string} [model] */
async function countTokens(text, model) {
  const tokens = await tokenize(text, model).catch(() => null);
  return { tokens: tokens?.length ?? Math.ceil(text.length / 4), isExact: tokens !== null };
}

/** @param {{ tokens: number, isExact: boolean }} count */
function inWords({ tokens, isExact }) {
  return `${isExact ? "" : "about "}${plural(tokens, "token")}`;
}
