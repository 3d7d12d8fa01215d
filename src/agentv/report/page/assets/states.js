// @ts-check
/** The outcomes of a result or a case, worst first. */

import {
  BORDERLINE_VERDICT,
  ERROR_FLAG,
  MACHINE_FLAGS,
  PASS_VERDICT,
  VERDICT_MASK,
} from "./constants.js";

export const ERROR = 0;
export const FAIL = 1;
export const BORDERLINE = 2;
export const PASS = 3;
/** The state of a case without results. */
export const ABSENT = 255;

/**
 * @typedef {object} State
 * @property {string} word
 * @property {string} sign
 * @property {string} key the name of the state in CSS classes and variables
 */

/** @type {State[]} */
export const STATES = [
  { word: "error", sign: "!", key: "error" },
  { word: "fail", sign: "✗", key: "fail" },
  { word: "borderline", sign: "~", key: "borderline" },
  { word: "pass", sign: "✓", key: "pass" },
];

/** @type {State} */
export const ABSENT_STATE = { word: "no result", sign: "–", key: "absent" };

/**
 * Return the state for the flags of a result.
 * @param {number} flags
 */
export function stateOfFlags(flags) {
  return flags & ERROR_FLAG ? ERROR : stateOfVerdictBits(flags);
}

/**
 * Return whether a result is a machine failure. These are excluded from means, shares and rates.
 * @param {number} flags
 */
export function isMachineFailure(flags) {
  return (flags & MACHINE_FLAGS) === MACHINE_FLAGS;
}

/**
 * Return the state of the verdict in the flags of a result, or of an evaluator's score.
 * @param {number} flags
 */
export function stateOfVerdictBits(flags) {
  const verdict = flags & VERDICT_MASK;
  if (verdict === PASS_VERDICT) return PASS;
  return verdict === BORDERLINE_VERDICT ? BORDERLINE : FAIL;
}

/**
 * Return the state of a verdict in a results file.
 * @param {string | undefined} verdict
 */
export function stateOfVerdict(verdict) {
  if (verdict === "pass") return PASS;
  return verdict === "borderline" ? BORDERLINE : FAIL;
}
