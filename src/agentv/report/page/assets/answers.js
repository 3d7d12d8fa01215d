// @ts-check
/** Shows two answers to the same question as a diff or side by side. */

/**
 * @import { Child } from "./dom.js"
 * @import { DiffPart } from "./diff.js"
 */

import { diffTexts } from "./diff.js";
import { button, el, elWith, fill, srOnly, switchButtons } from "./dom.js";
import { countText } from "./format.js";
import { longText } from "./texts.js";

const MOST_DIFFED = 400_000;
/** Common text longer than this is folded; only its ends are shown. */
const LONGEST_COMMON = 900;
const SHOWN_COMMON = 300;

/**
 * Return two answers as a diff, or side by side if they cannot be compared.
 * @param {string} before
 * @param {string} after
 */
export function answersDiff(before, after) {
  if (before === after) return sameAnswer(before);
  const view = el("div");
  const isTooLong = before.length + after.length > MOST_DIFFED;
  const canDiff = Boolean(before) && Boolean(after) && !isTooLong;
  fill(view, canDiff ? differences(before, after) : sideBySide(before, after));
  /** @param {string} name */
  const show = (name) => {
    fill(view, name === "differences" ? differences(before, after) : sideBySide(before, after));
  };
  const views = canDiff && switchButtons("show", ["differences", "side by side"], show);
  return el("section.answers", el("h2", "Answers ", views), view);
}

/** @param {string} answer */
function sameAnswer(answer) {
  const which = el("small", answer ? "the same in A and B" : "missing in A and B");
  const title = el("h2", "Answer ", which);
  return el("section.answers", title, answer && longText(answer));
}

/**
 * @param {string} before
 * @param {string} after
 */
function differences(before, after) {
  const parts = diffTexts(before, after);
  const marked = parts.map((part, at) => drawPart(part, at === 0, at === parts.length - 1));
  return el("div.text.diff", elWith("p.prose", { dir: "auto" }, marked));
}

/**
 * @param {string} before
 * @param {string} after
 */
function sideBySide(before, after) {
  return el("div.sides", answerSide("A", before), answerSide("B", after));
}

/**
 * @param {string} letter
 * @param {string} answer
 */
function answerSide(letter, answer) {
  const content = answer ? longText(answer) : el("p.quiet", "No answer.");
  return el("div", el("h3", letter), content);
}

/**
 * Return a part of a diff; long common text is folded.
 * @param {DiffPart} part
 * @param {boolean} isFirst
 * @param {boolean} isLast
 * @returns {Child}
 */
function drawPart({ kind, text }, isFirst, isLast) {
  if (kind === "removed") return el("del", srOnly(" only in A: "), text);
  if (kind === "added") return el("ins", srOnly(" only in B: "), text);
  if (text.length < LONGEST_COMMON) return text;
  const start = isFirst ? "" : text.slice(0, SHOWN_COMMON);
  const end = isLast ? "" : text.slice(-SHOWN_COMMON);
  const hidden = text.slice(start.length, text.length - end.length);
  const label = `… ${countText(hidden.length, "character")} unchanged …`;
  const more = button("more inline", () => more.replaceWith(hidden), label);
  return [start, more, end];
}
