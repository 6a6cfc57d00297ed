/** Reads an answer to screen readers sentence by sentence, not token by token. */

const SENTENCE = /[^]*[.!?。！？…](?=\s|$)|[^]*\n/;
/** Sentences that arrive faster are read together. */
const PAUSE = 1500;

export class Announcer {
  /** @param {Element} region An ARIA live region. */
  constructor(region) {
    this.region = region;
    this.read = 0;
    this.saidAt = 0;
  }

  /** @param {string} text */
  say(text) {
    this.region.textContent = text;
  }

  /** Begins an answer whose text is there already up to a length. @param {number} length */
  begin(length) {
    this.read = length;
    this.saidAt = 0;
    this.say("Answering");
  }

  /** @param {string} text The answer so far. */
  follow(text) {
    const now = performance.now();
    if (now - this.saidAt < PAUSE) return;
    const sentences = SENTENCE.exec(text.slice(this.read, this.read + 2000));
    if (!sentences) return;
    this.saidAt = now;
    this.read += sentences[0].length;
    this.say(sentences[0].trim());
  }

  /** @param {string} text The whole answer. @param {string} ending */
  end(text, ending) {
    const rest = text.slice(this.read).trim().slice(0, 2000);
    // A frame that was asked for before the end can still follow: it finds nothing more to say.
    this.read = text.length;
    this.say(rest ? `${rest} ${ending}` : ending);
  }
}
