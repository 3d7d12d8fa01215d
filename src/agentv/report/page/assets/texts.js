/** Texts of people and models: prose as prose, code, JSON and tables in a fixed pitch, and nothing of it as markup. */

import { el, fill } from "./dom.js";
import { sizeText } from "./format.js";

const CLIPPED = 1400;
const CLIPPED_LINES = 26;
const MOST_AT_ONCE = 300_000;
const FENCE = /^\s*(```|~~~)/;
const TURN = /^@\[(System|User|Assistant|Tool)\]:$/;

/** Returns a text that is cut at a readable length, with a button that shows the rest. */
export function longText(text, draw = proseBlocks) {
  const box = el("div", { class: "text" });
  const short = clip(text);
  if (short.length >= text.length) return fill(box, draw(text));
  const button = el("button", { type: "button", class: "more" });
  let shown = short.length;
  const show = () => {
    const whole = shown >= text.length;
    fill(box, draw(text.slice(0, shown)), whole ? null : button);
    button.textContent = text.length > MOST_AT_ONCE + shown ? `show more of ${sizeText(text.length)}` : `show all ${sizeText(text.length)}`;
    box.classList.toggle("clipped", !whole);
  };
  button.addEventListener("click", () => {
    shown = Math.min(text.length, shown + MOST_AT_ONCE);
    show();
  });
  show();
  return box;
}

function clip(text) {
  const start = text.slice(0, CLIPPED);
  let end = -1;
  for (let line = 0; line < CLIPPED_LINES; line++) {
    end = start.indexOf("\n", end + 1);
    if (end < 0) return text.length <= CLIPPED * 1.25 && text.split("\n", CLIPPED_LINES + 1).length <= CLIPPED_LINES ? text : start;
  }
  return start.slice(0, end);
}

/** Returns the paragraphs, code blocks and tables of a text; JSON is indented. */
export function proseBlocks(text) {
  const json = prettyJson(text);
  if (json !== null) return [el("pre", { class: "code", tabindex: "0", "aria-label": "JSON" }, json)];
  const blocks = [];
  let lines = [], kind = "prose";
  const flush = () => {
    const joined = lines.join("\n");
    if (kind === "prose" ? joined.trim() : joined) {
      blocks.push(kind === "prose" ? el("p", { class: "prose", dir: "auto" }, joined.replace(/^\n+|\s+$/g, ""))
        : el("pre", { class: kind, tabindex: "0", "aria-label": kind }, joined));
    }
    lines = [];
  };
  let fence = "";
  for (const line of text.split("\n")) {
    const opened = FENCE.exec(line)?.[1];
    if (fence) {
      if (opened === fence) { flush(); kind = "prose"; fence = ""; } else lines.push(line);
    } else if (opened) {
      flush();
      kind = "code";
      fence = opened;
    } else if (TURN.test(line)) {
      flush();
      kind = "prose";
      blocks.push(el("p", { class: "turn" }, TURN.exec(line)[1]));
    } else {
      const next = /^\s*\|.*\|\s*$/.test(line) ? "table" : "prose";
      if (next !== kind) { flush(); kind = next; }
      lines.push(line);
    }
  }
  flush();
  return blocks;
}

/** Returns a text that is a JSON object or array indented, null if it is something else. */
export function prettyJson(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 2_000_000) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** Returns any value as text: strings as they are, everything else as indented JSON. */
export function valueText(value) {
  if (typeof value === "string") return prettyJson(value) ?? value;
  try {
    return JSON.stringify(value, null, 2) ?? "";
  } catch {
    return String(value);
  }
}

/** Returns a text in a fixed pitch. */
export function codeBlock(text) {
  return [el("pre", { class: "code", tabindex: "0", "aria-label": "text" }, text)];
}

/** Returns a summary that opens to a value. */
export function folded(title, value) {
  const details = el("details", { class: "folded" }, el("summary", null, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(longText(valueText(value), codeBlock));
  });
  return details;
}

/** Returns a value on one line. */
export function oneLine(value, most = 160) {
  const text = typeof value === "string" ? value : valueText(value);
  return text.slice(0, most * 2).replace(/\s+/g, " ").trim().slice(0, most);
}
