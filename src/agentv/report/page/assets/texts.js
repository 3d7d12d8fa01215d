// @ts-check
/**
 * Renders texts from users and models: prose in the page's font; code, JSON and tables in a
 * monospaced one. Text is never parsed as markup.
 */

/** @import { Child } from "./dom.js" */

import { button, el, elWith, fill } from "./dom.js";
import { sizeText } from "./format.js";

/**
 * Returns the elements of a text.
 * @typedef {(text: string) => Child[]} DrawText
 */

const CLIPPED_CHARACTERS = 1400;
const CLIPPED_LINES = 26;
/** A text that is only slightly longer than the limit is shown in full. */
const TOLERANCE = 1.25;
const SHOWN_AT_ONCE = 300_000;
const MAX_JSON_CHARACTERS = 2_000_000;
const FENCE = /^\s*(```|~~~)/;
const TURN = /^@\[(System|User|Assistant|Tool)\]:$/;
const TABLE_ROW = /^\s*\|.*\|\s*$/;

// long texts

/**
 * Return a text, clipped at a readable length with a button that shows the rest.
 * @param {string} text
 * @param {DrawText} [draw]
 */
export function longText(text, draw = proseBlocks) {
  const box = el("div.text");
  let shown = clip(text).length;
  if (shown >= text.length) return fill(box, draw(text));
  const more = button("more", () => {
    shown = Math.min(text.length, shown + SHOWN_AT_ONCE);
    show();
  });
  const show = () => {
    const isWhole = shown >= text.length;
    const isLast = text.length <= SHOWN_AT_ONCE + shown;
    const size = sizeText(text.length);
    more.textContent = isLast ? `show all ${size}` : `show more of ${size}`;
    fill(box, draw(text.slice(0, shown)), isWhole ? null : more);
    box.classList.toggle("clipped", !isWhole);
  };
  show();
  return box;
}

/** @param {string} text */
function clip(text) {
  const start = text.slice(0, CLIPPED_CHARACTERS);
  let end = -1;
  for (let line = 0; line < CLIPPED_LINES; line++) {
    end = start.indexOf("\n", end + 1);
    if (end < 0) return isShort(text) ? text : start;
  }
  return start.slice(0, end);
}

/** @param {string} text */
function isShort(text) {
  if (text.length > CLIPPED_CHARACTERS * TOLERANCE) return false;
  return text.split("\n", CLIPPED_LINES + 1).length <= CLIPPED_LINES;
}

// paragraphs, code and tables

/**
 * Return the paragraphs, code blocks and tables of a text; JSON is indented.
 * @param {string} text
 * @returns {Child[]}
 */
export function proseBlocks(text) {
  const json = prettyJson(text);
  if (json !== null) return [preformatted("code", "JSON", json)];
  const blocks = new TextBlocks();
  for (const line of text.split("\n")) blocks.addLine(line);
  return blocks.finish();
}

/** Collects the lines of a text into blocks. */
class TextBlocks {
  /** @type {HTMLElement[]} */
  blocks = [];
  /** @type {string[]} */
  lines = [];
  /** @type {"prose" | "code" | "table"} */
  kind = "prose";
  /** The fence that closes the current code block; empty outside of one. */
  fence = "";

  /** @param {string} line */
  addLine(line) {
    const fence = FENCE.exec(line)?.[1];
    const speaker = TURN.exec(line)?.[1];
    if (this.fence) {
      if (fence === this.fence) this.#closeCode();
      else this.lines.push(line);
    } else if (fence) {
      this.#startBlock("code");
      this.fence = fence;
    } else if (speaker) {
      this.#startBlock("prose");
      this.blocks.push(el("p.turn", speaker));
    } else {
      const kind = TABLE_ROW.test(line) ? "table" : "prose";
      if (kind !== this.kind) this.#startBlock(kind);
      this.lines.push(line);
    }
  }

  finish() {
    this.#flush();
    return this.blocks;
  }

  #closeCode() {
    this.#startBlock("prose");
    this.fence = "";
  }

  /** @param {"prose" | "code" | "table"} kind */
  #startBlock(kind) {
    this.#flush();
    this.kind = kind;
  }

  #flush() {
    const text = this.lines.join("\n");
    this.lines = [];
    if (this.kind !== "prose") {
      if (text) this.blocks.push(preformatted(this.kind, this.kind, text));
      return;
    }
    if (!text.trim()) return;
    const trimmed = text.replace(/^\n+|\s+$/g, "");
    this.blocks.push(elWith("p.prose", { dir: "auto" }, trimmed));
  }
}

/**
 * Return text in a monospaced font. It is focusable, so that it can be scrolled with the keyboard.
 * @param {string} className
 * @param {string} label
 * @param {string} text
 */
function preformatted(className, label, text) {
  return elWith("pre", { class: className, tabindex: "0", "aria-label": label }, text);
}

/**
 * Return a text in a monospaced font.
 * @param {string} text
 * @returns {Child[]}
 */
export function codeBlock(text) {
  return [preformatted("code", "text", text)];
}

// values

/**
 * Return a JSON object or array with indentation, or null if the text is neither.
 * @param {string} text
 */
function prettyJson(text) {
  if (!/^\s*[[{]/.test(text) || text.length > MAX_JSON_CHARACTERS) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/**
 * Return any value as text: strings unchanged, everything else as indented JSON.
 * @param {unknown} value
 */
export function valueText(value) {
  if (typeof value === "string") return prettyJson(value) ?? value;
  try {
    return JSON.stringify(value, null, 2) ?? "";
  } catch {
    return String(value);
  }
}

/**
 * Return a collapsed section that shows a value. The value is rendered on first opening.
 * @param {string} title
 * @param {unknown} value
 */
export function folded(title, value) {
  const details = el("details.folded", el("summary", title));
  details.addEventListener("toggle", () => {
    const isDrawn = details.children.length > 1;
    if (details.open && !isDrawn) details.append(longText(valueText(value), codeBlock));
  });
  return details;
}

/**
 * Return a value on one line.
 * @param {unknown} value
 */
export function oneLine(value, maxLength = 160) {
  const text = typeof value === "string" ? value : valueText(value);
  const start = text.slice(0, maxLength * 2);
  return start.replace(/\s+/g, " ").trim().slice(0, maxLength);
}
