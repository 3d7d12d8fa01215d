// @ts-check
// Written by scripts/page_contract.py (`make schemas`). Do not edit.
/** The numbers that the pages share with Python. */

/** The bits of the flags of a result. The two lowest bits hold the verdict. */
export const VERDICT_MASK = 3;
export const ERROR_FLAG = 4;
export const TIMEOUT_FLAG = 8;
export const UNJUDGED_FLAG = 16;
export const CUT_OFF_FLAG = 32;
export const NOTED_FLAG = 64;
export const DRY_RUN_FLAG = 128;
/** Both bits: the machine had reached a limit. */
export const MACHINE_FLAGS = 20;

/** In the flags of an evaluator's score: it does not apply to the case. */
export const NOT_APPLICABLE_FLAG = 8;

/** The verdicts in the two lowest bits. Any other is a failure. */
export const BORDERLINE_VERDICT = 1;
export const PASS_VERDICT = 2;

/** The edges between the bins of a histogram of scores, and the verdict of the scores in each bin. */
export const BIN_EDGES = [0.2, 0.4, 0.6, 0.8];
export const BIN_VERDICTS = [0, 0, 0, 1, 2];

/** What a filter selects; each also has the keys of those before it. */
export const FILTERED = ["cases", "results", "comparisons"];
/**
 * The keys of filters.
 * @type {Record<string, { values: string, on: string, choices?: string[], needsName?: boolean }>}
 */
export const FILTER_KEYS = {
  id: {
    values: "text",
    on: "cases",
  },
  tag: {
    values: "text",
    on: "cases",
  },
  dataset: {
    values: "text",
    on: "cases",
  },
  target: {
    values: "text",
    on: "cases",
  },
  metadata: {
    values: "any",
    on: "cases",
    needsName: true,
  },
  vars: {
    values: "any",
    on: "cases",
    needsName: true,
  },
  verdict: {
    values: "choice",
    on: "results",
    choices: ["pass", "borderline", "fail", "error"],
  },
  score: {
    values: "number",
    on: "results",
  },
  evaluator: {
    values: "evaluator",
    on: "results",
    choices: ["pass", "borderline", "fail", "error"],
  },
  error: {
    values: "choice",
    on: "results",
    choices: ["yes", "no"],
  },
  note: {
    values: "choice",
    on: "results",
    choices: ["yes", "no"],
  },
  duration: {
    values: "number",
    on: "results",
  },
  cost: {
    values: "number",
    on: "results",
  },
  flip: {
    values: "choice",
    on: "comparisons",
    choices: ["broken", "fixed", "errored", "no"],
  },
  delta: {
    values: "number",
    on: "comparisons",
  },
};
/** How close a score must be to equal another. */
export const EQUAL_WITHIN = 0.005;
