// @ts-check
/** The marks of verdicts: an icon and a word, never a color alone. */

import { decorative, el, elWith, srOnly } from "./dom.js";
import { FLIPS } from "./figures.js";
import { ABSENT_STATE, STATES } from "./states.js";

/**
 * @import { Model } from "./model.js"
 * @import { State } from "./states.js"
 */

/**
 * Return the sign and the word of a state.
 * @param {number} state
 */
export function stateMark(state) {
  return wordMark(STATES[state] ?? ABSENT_STATE);
}

/**
 * Return the sign of a state; the word is its title.
 * @param {number} state
 */
export function stateSign(state) {
  const { word, sign, key } = STATES[state] ?? ABSENT_STATE;
  return elWith(`span.mark.${key}`, { title: word }, decorative("span", sign), srOnly(word));
}

/**
 * Return how a case changed (broken, fixed, errored or in one run only), or its state if unchanged.
 * @param {Model} model
 * @param {number} row
 */
export function flipMark(model, row) {
  const flip = FLIPS[model.flips[row]];
  return flip ? wordMark(flip) : stateMark(model.state(row));
}

/** @param {State} state */
function wordMark({ key, sign, word }) {
  return el(`span.mark.${key}`, decorative("span", sign), el("span.word", ` ${word}`));
}
