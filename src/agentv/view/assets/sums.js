/** The columns of a run -> what they come to by case. Words and intervals for these sums are made by the server. */

import { PASS } from "./format.js";

const VERDICT = 3, ERROR = 4, TIMEOUT = 8, UNJUDGED = 16, CUT_OFF = 32, NOTED = 64, DRY_RUN = 128, PASSED = 2;
const EDGES = [0.2, 0.4, 0.6, 0.8];

/** Adds up numbers one by one: their mean and how far they are from it. */
class Spread {
  count = 0;
  mean = 0;
  squares = 0;

  add(value) {
    const off = value - this.mean;
    this.mean += off / ++this.count;
    this.squares += off * (value - this.mean);
  }

  get deviation() {
    return this.count > 1 ? Math.sqrt(this.squares / (this.count - 1)) : 0;
  }
}

/** Returns the sums of a run; null if it has no results. */
export function caseSums(run) {
  if (!run.count) return null;
  const scores = new Spread(), shares = new Map(), histogram = [0, 0, 0, 0, 0];
  let trials = 0;
  for (let row = 0; row < run.rowCount; row++) {
    const results = run.resultsOf(row), mean = run.rowScores[row];
    if (!results.length) continue;
    let passed = 0;
    for (const result of results) if (run.state(result) === PASS) passed++;
    const share = passed / results.length;
    shares.set(share, (shares.get(share) ?? 0) + 1);
    trials = Math.max(trials, results.length);
    scores.add(mean);
    histogram[EDGES.filter((edge) => edge <= mean).length]++;
  }
  return {
    results: run.count, cases: scores.count, trials, mean: scores.mean, deviation: scores.deviation, shares: [...shares], histogram,
    ...flagCounts(run.flags), evaluators: evaluatorSums(run),
  };
}

function flagCounts(flags) {
  const counts = { target_errors: 0, timeouts: 0, judge_failures: 0, cut_off: 0, noted: 0, dry_run: 0 };
  for (const flag of flags) {
    if (flag & TIMEOUT) counts.timeouts++;
    else if (flag & ERROR) counts.target_errors++;
    if (flag & UNJUDGED) counts.judge_failures++;
    if (flag & CUT_OFF) counts.cut_off++;
    if (flag & NOTED) counts.noted++;
    if (flag & DRY_RUN) counts.dry_run++;
  }
  return counts;
}

/** Returns the sums of each evaluator: of the cases that it judged, with the mean of the trials of each. */
function evaluatorSums(run) {
  const names = run.meta.evaluators;
  const totals = names.map(() => ({ spread: new Spread(), passes: 0, failures: 0 }));
  const sums = new Float64Array(names.length), counts = new Uint32Array(names.length), passes = new Uint32Array(names.length);
  for (let row = 0; row < run.rowCount; row++) {
    const touched = [];
    for (const result of run.resultsOf(row)) {
      for (let at = run.evaluatorStarts[result]; at < run.evaluatorStarts[result + 1]; at++) {
        const number = run.evaluatorNames[at], flags = run.evaluatorFlags[at];
        if (counts[number]++ === 0) touched.push(number);
        sums[number] += run.evaluatorScores[at];
        if ((flags & VERDICT) === PASSED) passes[number]++;
        if (flags & UNJUDGED) totals[number].failures++;
      }
    }
    for (const number of touched) {
      totals[number].spread.add(sums[number] / counts[number]);
      totals[number].passes += passes[number] / counts[number];
      sums[number] = counts[number] = passes[number] = 0;
    }
  }
  return totals.map(({ spread, passes: passed, failures }, number) => ({
    name: names[number], cases: spread.count, mean: spread.mean, deviation: spread.deviation, pass_rate: spread.count ? passed / spread.count : 0, failures,
  })).filter((each) => each.cases);
}
