/**
 * Computes the figures of runs with `figures.js`. Reads the folder of the module from the arguments and the columns of
 * the runs of each vector from stdin, and writes figures to stdout; both as JSON.
 */

import { readFileSync } from "node:fs";

const assets = process.argv[2];
const { readColumns } = await import(`${assets}/columns.js`);
const { CaseFigures, caseSums, compareCases, countFlips } = await import(`${assets}/figures.js`);
const { ABSENT, STATES } = await import(`${assets}/states.js`);

function figuresOf({ columns, rows, evaluators }) {
  const cases = new CaseFigures(
    readColumns(({ block, type }) => type.from(columns[block], (value) => value ?? NaN)),
    rows,
  );
  return { cases, sums: caseSums(cases, evaluators) };
}

function caseOf(cases, row) {
  if (cases.states[row] === ABSENT) return null;
  return {
    score: cases.scores[row],
    verdict: STATES[cases.states[row]].word,
    duration: cases.durations[row],
    cost: cases.costs[row],
  };
}

function resultOf(runs) {
  const figures = runs.map(figuresOf);
  const [before, after] = figures;
  return {
    runs: figures.map(({ cases, sums }) => ({
      cases: Array.from({ length: cases.count }, (_, row) => caseOf(cases, row)),
      sums,
    })),
    flips: after ? countFlips(compareCases(before.cases, after.cases).flips) : null,
  };
}

const vectors = JSON.parse(readFileSync(0, "utf-8"));
process.stdout.write(JSON.stringify(vectors.map(resultOf)));
