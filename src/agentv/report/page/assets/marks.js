// @ts-check
/** The marks of verdicts: an icon and a word, never a color alone. */

import { decorative, el, srOnly } from "./dom.js";
import { BROKEN, ERRORED, FIXED, ONLY_A, ONLY_B } from "./figures.js";
import { ABSENT_STATE, STATES } from "./states.js";

/** @import { Model } from "./model.js" */

/**
 * Return the sign and the word of a state.
 * @param {number} state
 */
export function stateMark(state) {
  const { word, sign, key } = STATES[state] ?? ABSENT_STATE;
  return wordMark(key, sign, word);
}

/**
 * Return the sign of a state; the word is its title.
 * @param {number} state
 */
export function stateSign(state) {
  const { word, sign, key } = STATES[state] ?? ABSENT_STATE;
  return el("span", { class: `mark ${key}`, title: word }, decorative(sign), srOnly(word));
}

/**
 * Return how a case changed (broken, fixed, errored or in one run only), or its state if unchanged.
 * @param {Model} model
 * @param {number} row
 */
export function flipMark(model, row) {
  switch (model.flips[row]) {
    case BROKEN:
      return wordMark("fail", "▼", "broken");
    case FIXED:
      return wordMark("pass", "▲", "fixed");
    case ERRORED:
      return wordMark("error", "!", "errored");
    case ONLY_A:
      return wordMark("absent", "A", "only");
    case ONLY_B:
      return wordMark("absent", "B", "only");
    default:
      return stateMark(model.state(row));
  }
}

/**
 * @param {string} key
 * @param {string} sign
 * @param {string} word
 */
function wordMark(key, sign, word) {
  const words = el("span", { class: "word" }, ` ${word}`);
  return el("span", { class: `mark ${key}` }, decorative(sign), words);
}
