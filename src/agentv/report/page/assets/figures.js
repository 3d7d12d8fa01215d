// @ts-check
/**
 * Computes the figures of a run from its results. The unit is the case, not the trial.
 *
 * Python computes the same figures for reports, in `agentv.report.page.sums`. Both must pass the
 * test vectors in `tests/report/figures.json`.
 */

/**
 * @import { CaseSums, EvaluatorSums, FlipCounts } from "../contract"
 * @import { Columns } from "./columns.js"
 * @import { State } from "./states.js"
 */

import { runningSums } from "./columns.js";
import {
  BIN_EDGES,
  BIN_VERDICTS,
  BORDERLINE_VERDICT,
  CUT_OFF_FLAG,
  DRY_RUN_FLAG,
  ERROR_FLAG,
  NOT_APPLICABLE_FLAG,
  NOTED_FLAG,
  PASS_VERDICT,
  TIMEOUT_FLAG,
  UNJUDGED_FLAG,
  VERDICT_MASK,
} from "./constants.js";
import { ABSENT, BORDERLINE, ERROR, FAIL, isMachineFailure, PASS, stateOfFlags } from "./states.js";

/**
 * How a case changed between two runs, in sort order. A case is errored if it ended in an error or
 * was not judged in either run, which leaves the change unknown.
 */
export const BROKEN = 0;
export const FIXED = 1;
export const ERRORED = 2;
export const SAME = 3;
const ONLY_A = 4;
const ONLY_B = 5;

/**
 * How a change is shown. Cases that are the same in both runs have no entry.
 * @type {Record<number, State>}
 */
export const FLIPS = {
  [BROKEN]: { word: "broken", sign: "▼", key: "fail" },
  [FIXED]: { word: "fixed", sign: "▲", key: "pass" },
  [ERRORED]: { word: "errored", sign: "!", key: "error" },
  [ONLY_A]: { word: "only", sign: "A", key: "absent" },
  [ONLY_B]: { word: "only", sign: "B", key: "absent" },
};

/**
 * The figures of each case of a run. A case without results has no score and is `ABSENT`. A case
 * with machine failures only has no score and is an `ERROR`.
 */
export class CaseFigures {
  /**
   * @param {Columns} columns
   * @param {number} count the number of rows of the page, each of which is a case
   */
  constructor(columns, count) {
    this.columns = columns;
    this.count = count;
    this.starts = startsByRow(columns.rows, count);
    this.order = orderByRow(columns.rows, this.starts);
    this.evaluatorStarts = runningSums(columns.evaluatorCounts);
    this.scores = new Float64Array(count).fill(NaN);
    this.durations = new Float64Array(count).fill(NaN);
    this.costs = new Float64Array(count).fill(NaN);
    this.states = new Uint8Array(count).fill(ABSENT);
    for (let row = 0; row < count; row++) {
      this.#addUp(row);
    }
  }

  /**
   * Return the numbers of the results of a case.
   * @param {number} row
   */
  resultsOf(row) {
    return this.order.subarray(this.starts[row], this.starts[row + 1]);
  }

  /**
   * Return the state of a result.
   * @param {number} result
   */
  stateOf(result) {
    return stateOfFlags(this.columns.flags[result]);
  }

  /**
   * Return the state of a case in a comparison: `PASS` if all its results pass, `FAIL` if one
   * fails, otherwise `ERROR`.
   * @param {number} row
   */
  comparedState(row) {
    let isErrored = false;
    for (const result of this.resultsOf(row)) {
      if (this.columns.flags[result] & (ERROR_FLAG | UNJUDGED_FLAG)) isErrored = true;
      else if (this.stateOf(result) !== PASS) return FAIL;
    }
    return isErrored ? ERROR : PASS;
  }

  /** @param {number} row */
  #addUp(row) {
    const from = this.starts[row];
    const to = this.starts[row + 1];
    if (from === to) return;
    this.scores[row] = this.#mean(this.columns.scores, from, to);
    this.durations[row] = this.#mean(this.columns.durations, from, to);
    this.costs[row] = this.#mean(this.columns.costs, from, to);
    const isSingle = to - from === 1;
    this.states[row] = isSingle ? this.stateOf(this.order[from]) : this.#majority(row, from, to);
  }

  /**
   * Return the mean of the known numbers of a case without machine failures, or NaN if all are
   * unknown.
   * @param {Float32Array | Float64Array} column
   * @param {number} from
   * @param {number} to
   */
  #mean(column, from, to) {
    let sum = 0;
    let known = 0;
    for (let at = from; at < to; at++) {
      const result = this.order[at];
      const value = column[result];
      if (Number.isNaN(value) || isMachineFailure(this.columns.flags[result])) continue;
      sum += value;
      known++;
    }
    return known ? rounded(sum / known) : NaN;
  }

  /**
   * Return the state of a case with several trials: the majority of the scored trials decides.
   * @param {number} row
   * @param {number} from
   * @param {number} to
   */
  #majority(row, from, to) {
    let passed = 0;
    let scored = 0;
    let errors = 0;
    for (let at = from; at < to; at++) {
      const result = this.order[at];
      const state = this.stateOf(result);
      if (state === ERROR) errors++;
      if (state === PASS) passed++;
      if (!(this.columns.flags[result] & (ERROR_FLAG | UNJUDGED_FLAG))) scored++;
    }
    if (errors === to - from) return ERROR;
    if (2 * passed > scored) return PASS;
    const verdict = BIN_VERDICTS[binOf(this.scores[row])];
    return verdict === BORDERLINE_VERDICT ? BORDERLINE : FAIL;
  }
}

/**
 * Return where the results of each row start in an order by row.
 * @param {Uint32Array} rows
 * @param {number} count
 */
function startsByRow(rows, count) {
  const counts = new Uint32Array(count);
  for (const row of rows) counts[row]++;
  return runningSums(counts);
}

/**
 * Return the numbers of all results, those of row 0 first.
 * @param {Uint32Array} rows
 * @param {Uint32Array} starts
 */
function orderByRow(rows, starts) {
  const order = new Uint32Array(rows.length);
  const next = starts.slice();
  for (let result = 0; result < rows.length; result++) {
    const place = next[rows[result]]++;
    order[place] = result;
  }
  return order;
}

/**
 * Round as Python does, so that the mean of 0.7, 0.8 and 0.9 is exactly 0.8.
 * @param {number} value
 */
function rounded(value) {
  return Math.round(value * 1e12) / 1e12;
}

// sums, which Python turns into intervals and sentences

/** Adds up numbers one by one: their mean and their standard deviation (Welford's method). */
class Spread {
  count = 0;
  mean = 0;
  squares = 0;

  /** @param {number} value */
  add(value) {
    const offset = value - this.mean;
    this.count++;
    this.mean += offset / this.count;
    this.squares += offset * (value - this.mean);
  }

  get deviation() {
    return this.count > 1 ? Math.sqrt(this.squares / (this.count - 1)) : 0;
  }
}

/**
 * Return the sums of a run that has results.
 * @param {CaseFigures} cases
 * @param {string[]} evaluatorNames
 * @returns {CaseSums}
 */
export function caseSums(cases, evaluatorNames) {
  const scores = new Spread();
  /** @type {Map<number, number>} */
  const shares = new Map();
  const histogram = new Array(BIN_EDGES.length + 1).fill(0);
  let trials = 0;
  for (let row = 0; row < cases.count; row++) {
    const { counted, passed } = countTrials(cases, row);
    if (counted === 0) continue;
    const share = passed / counted;
    shares.set(share, (shares.get(share) ?? 0) + 1);
    trials = Math.max(trials, counted);
    scores.add(cases.scores[row]);
    histogram[binOf(cases.scores[row])]++;
  }
  return {
    results: cases.order.length,
    cases: scores.count,
    trials,
    mean: scores.mean,
    deviation: scores.deviation,
    shares: [...shares],
    histogram,
    ...flagCounts(cases.columns.flags),
    evaluators: evaluatorSums(cases, evaluatorNames),
  };
}

/**
 * Return the number of results of a case, without machine failures, and how many of them passed.
 * @param {CaseFigures} cases
 * @param {number} row
 */
function countTrials(cases, row) {
  let counted = 0;
  let passed = 0;
  for (const result of cases.resultsOf(row)) {
    if (isMachineFailure(cases.columns.flags[result])) continue;
    counted++;
    if (cases.stateOf(result) === PASS) passed++;
  }
  return { counted, passed };
}

/** @param {number} score */
function binOf(score) {
  let bin = 0;
  while (score >= BIN_EDGES[bin]) bin++;
  return bin;
}

/** @param {Uint8Array} flags */
function flagCounts(flags) {
  const counts = {
    target_errors: 0,
    timeouts: 0,
    judge_failures: 0,
    machine_failures: 0,
    cut_off: 0,
    noted: 0,
    dry_run: 0,
  };
  for (const flag of flags) {
    if (isMachineFailure(flag)) counts.machine_failures++;
    else if (flag & TIMEOUT_FLAG) counts.timeouts++;
    else if (flag & ERROR_FLAG) counts.target_errors++;
    else if (flag & UNJUDGED_FLAG) counts.judge_failures++;
    if (flag & CUT_OFF_FLAG) counts.cut_off++;
    if (flag & NOTED_FLAG) counts.noted++;
    if (flag & DRY_RUN_FLAG) counts.dry_run++;
  }
  return counts;
}

/**
 * Adds up the scores of one evaluator: first within each case, then the means of the cases. Judge
 * failures are counted and excluded from the mean.
 */
class EvaluatorTotal {
  means = new Spread();
  passShares = 0;
  failures = 0;
  sum = 0;
  count = 0;
  passes = 0;

  /**
   * @param {number} score
   * @param {number} flags
   */
  add(score, flags) {
    if (flags & UNJUDGED_FLAG) {
      this.failures++;
      return;
    }
    this.sum += score;
    this.count++;
    if ((flags & VERDICT_MASK) === PASS_VERDICT) this.passes++;
  }

  closeCase() {
    if (this.count === 0) return;
    this.means.add(this.sum / this.count);
    this.passShares += this.passes / this.count;
    this.sum = 0;
    this.count = 0;
    this.passes = 0;
  }
}

/**
 * Return the sums of each evaluator, over the cases that it judged.
 * @param {CaseFigures} cases
 * @param {string[]} names
 * @returns {EvaluatorSums[]}
 */
function evaluatorSums(cases, names) {
  const { evaluatorNames, evaluatorScores, evaluatorFlags } = cases.columns;
  const totals = names.map(() => new EvaluatorTotal());
  /** @type {Set<EvaluatorTotal>} */
  const judged = new Set();
  for (let row = 0; row < cases.count; row++) {
    for (const result of cases.resultsOf(row)) {
      const end = cases.evaluatorStarts[result + 1];
      for (let at = cases.evaluatorStarts[result]; at < end; at++) {
        if (evaluatorFlags[at] & NOT_APPLICABLE_FLAG) continue;
        const total = totals[evaluatorNames[at]];
        total.add(evaluatorScores[at], evaluatorFlags[at]);
        judged.add(total);
      }
    }
    for (const total of judged) total.closeCase();
    judged.clear();
  }
  const sums = totals.map(({ means, passShares, failures }, number) => ({
    name: names[number],
    cases: means.count,
    mean: means.mean,
    deviation: means.deviation,
    pass_rate: means.count ? passShares / means.count : 0,
    failures,
  }));
  return sums.filter((each) => each.cases > 0 || each.failures > 0);
}

// two runs

/**
 * Return how each case changed between two runs: the difference of its scores (NaN if either run
 * lacks the case) and whether it broke or was fixed. A case passes if all its trials pass.
 * @param {CaseFigures} before
 * @param {CaseFigures} after
 */
export function compareCases(before, after) {
  const deltas = new Float64Array(before.count).fill(NaN);
  const flips = new Uint8Array(before.count).fill(SAME);
  for (let row = 0; row < before.count; row++) {
    if (before.states[row] === ABSENT) {
      flips[row] = ONLY_B;
      continue;
    }
    if (after.states[row] === ABSENT) {
      flips[row] = ONLY_A;
      continue;
    }
    deltas[row] = rounded(after.scores[row] - before.scores[row]);
    const stateBefore = before.comparedState(row);
    const stateAfter = after.comparedState(row);
    if (stateBefore === stateAfter && stateBefore !== ERROR) continue;
    if (stateBefore === ERROR || stateAfter === ERROR) flips[row] = ERRORED;
    else if (stateAfter === PASS) flips[row] = FIXED;
    else flips[row] = BROKEN;
  }
  return { deltas, flips };
}

/**
 * Return the number of fixed, broken and errored cases.
 * @param {Uint8Array} flips
 * @returns {FlipCounts}
 */
export function countFlips(flips) {
  const counts = { fixed: 0, broken: 0, errored: 0 };
  for (const flip of flips) {
    if (flip === FIXED) counts.fixed++;
    if (flip === BROKEN) counts.broken++;
    if (flip === ERRORED) counts.errored++;
  }
  return counts;
}
