// @ts-check
/**
 * Matches rows against the terms of a filter, as `agentv.filters.match` does.
 *
 * With several trials, terms about score, duration, cost and verdict use the values in the table.
 * Any other term matches if one of the trials matches.
 */

/**
 * @import { Model } from "./model.js"
 * @import { Term } from "./query.js"
 */

import {
  CUT_OFF_FLAG,
  EQUAL_WITHIN,
  ERROR_FLAG,
  FILTER_KEYS,
  NOT_APPLICABLE_FLAG,
  NOTED_FLAG,
  UNJUDGED_FLAG,
} from "./constants.js";
import { ERRORED, FLIPS } from "./figures.js";
import { CASE_VALUES } from "./model.js";
import { numberOf, TEXT } from "./query.js";
import { ERROR, FAIL, STATES, stateOfVerdictBits } from "./states.js";

/**
 * @typedef {(row: number) => boolean} RowTest
 * @typedef {(value: any) => boolean} ValueTest
 *
 * The fields of a result that are not in its columns.
 * @typedef {{ tag?: string[], metadata?: Record<string, any>, vars?: Record<string, any> }} Fields
 */

/** The keys of fields that are read when a filter needs them. */
const READ_KEYS = ["tag", "metadata", "vars"];
const ERROR_WORD = STATES[ERROR].word;
const FAIL_WORD = STATES[FAIL].word;

/**
 * Return whether a term needs a field that is not in the columns.
 * @param {Term} term
 */
export function isRead(term) {
  return READ_KEYS.includes(term.key);
}

/**
 * Return a test for rows that match all terms except those that need results to be read.
 * @param {Model} model
 * @param {Term[]} terms
 * @returns {RowTest}
 */
export function rowFilter(model, terms) {
  /** @type {RowTest[]} */
  const tests = [];
  for (const term of terms) {
    if (term.key === TEXT || isRead(term) || term.problem) continue;
    const test = rowTest(model, term);
    tests.push(term.isNegated ? (row) => !test(row) : test);
  }
  return (row) => tests.every((test) => test(row));
}

/**
 * Return a test for the fields of a result, ignoring negation.
 * @param {Term} term about such a field
 * @returns {(fields: Fields) => boolean}
 */
export function fieldsTest(term) {
  const test = valueTest(term);
  const { key, name } = term;
  if (key === "tag") return (fields) => (fields.tag ?? []).some(test);
  const part = key === "metadata" ? "metadata" : "vars";
  return (fields) => valuesAt(fields[part] ?? {}, name).some(test);
}

// values

/**
 * Return a test for a single value of a term's field.
 * @param {Term} term
 * @returns {ValueTest}
 */
function valueTest({ key, name, operator, value }) {
  const number = numberOf(value);
  const isNumber = !Number.isNaN(number);
  const { values } = FILTER_KEYS[key];
  if (operator !== ":") return comparison(operator, number);
  if (values === "any") return anyTest(value, number);
  if (isNumber && (values === "number" || name)) {
    const tolerance = key === "score" || key === "evaluator" ? EQUAL_WITHIN : 0;
    return (found) => Math.abs(asNumber(found) - number) <= tolerance;
  }
  if (values === "choice" || name) return (found) => found === value;
  return globTest(value);
}

/**
 * @param {string} operator
 * @param {number} number
 * @returns {ValueTest}
 */
function comparison(operator, number) {
  if (operator === "<") return (value) => asNumber(value) < number;
  if (operator === "<=") return (value) => asNumber(value) <= number;
  if (operator === ">") return (value) => asNumber(value) > number;
  return (value) => asNumber(value) >= number;
}

/**
 * Return a test for a value of any type. Numbers are compared by value, not by notation.
 * @param {string} pattern
 * @param {number} number
 * @returns {ValueTest}
 */
function anyTest(pattern, number) {
  const matches = globTest(pattern);
  return (value) => {
    if (typeof value === "string") return matches(value);
    return value === number || matches(JSON.stringify(value));
  };
}

/**
 * Return a test for texts. `*` matches any text, `?` any character. A text always matches itself.
 * @param {string} pattern
 * @returns {(text: string) => boolean}
 */
function globTest(pattern) {
  const escaped = pattern.replace(/[\\^$.+()[\]{}|/]/g, "\\$&");
  const regex = new RegExp(`^${escaped.replaceAll("*", ".*").replaceAll("?", ".")}$`, "su");
  return (text) => text === pattern || regex.test(text);
}

/** @param {any} value */
function asNumber(value) {
  if (typeof value === "string") return numberOf(value); // a column of a CSV file
  return typeof value === "number" ? value : NaN;
}

/**
 * Return the values of a key, or of a path such as `customer.country`. Lists are flattened.
 * @param {Record<string, any>} mapping
 * @param {string} name
 */
function valuesAt(mapping, name) {
  if (Object.hasOwn(mapping, name)) return flatten(mapping[name]);
  /** @type {any} */
  let value = mapping;
  for (const part of name.split(".")) {
    const isMapping = typeof value === "object" && value !== null && !Array.isArray(value);
    if (!isMapping || !Object.hasOwn(value, part)) return [];
    value = value[part];
  }
  return flatten(value);
}

/**
 * @param {any} value
 * @returns {any[]}
 */
function flatten(value) {
  return [value].flat(Infinity).filter((each) => each !== null);
}

// rows

/**
 * @param {Model} model
 * @param {Term} term
 * @returns {RowTest}
 */
function rowTest(model, term) {
  const { key, name } = term;
  const test = valueTest(term);
  switch (key) {
    case "id":
      return (row) => test(model.id(row));
    case "dataset":
      return nameTest(model, test, "datasets");
    case "target":
      return nameTest(model, test, "targets");
    case "verdict":
      return (row) => wordsOfState(model.state(row)).some(test);
    case "evaluator":
      return name ? scoreTest(model, term, test) : evaluatorTest(model, test);
    case "error":
      return flagTest(model, test, ERROR_FLAG);
    case "note":
      return flagTest(model, test, CUT_OFF_FLAG | NOTED_FLAG);
    case "flip":
      return (row) => test(model.flips[row] <= ERRORED ? FLIPS[model.flips[row]].word : "no");
    case "delta":
      return (row) => test(model.deltas[row]);
    default:
      return (row) => test(model.runOf(row).cases[CASE_VALUES[key]][row]);
  }
}

/**
 * Return the verdicts that match a state: an error also matches `fail`.
 * @param {number} state
 */
function wordsOfState(state) {
  return state === ERROR ? [FAIL_WORD, ERROR_WORD] : [STATES[state].word];
}

/**
 * @param {Model} model
 * @param {ValueTest} test
 * @param {number} bits
 * @returns {RowTest}
 */
function flagTest(model, test, bits) {
  const isYesWanted = test("yes");
  return (row) => {
    const { columns } = model.runOf(row);
    return resultsOf(model, row).some((result) => columns.flags[result] & bits) === isYesWanted;
  };
}

/**
 * @param {Model} model
 * @param {number} row
 */
function resultsOf(model, row) {
  return [...model.runOf(row).resultsOf(row)];
}

/**
 * @param {Model} model
 * @param {ValueTest} test
 * @param {"datasets" | "targets"} kind
 * @returns {RowTest}
 */
function nameTest(model, test, kind) {
  const wanted = new Map(model.runs.map((run) => [run, matchingNumbers(run.meta[kind], test)]));
  return (row) => {
    const run = model.runOf(row);
    const numbers = run.columns[kind];
    return resultsOf(model, row).some((result) => wanted.get(run)?.has(numbers[result]));
  };
}

/**
 * Return the numbers of the matching names. An empty name never matches.
 * @param {string[]} names
 * @param {ValueTest} test
 */
function matchingNumbers(names, test) {
  return new Set([...names.keys()].filter((number) => names[number] && test(names[number])));
}

/**
 * Return a test for rows with an evaluator, whether or not it applies.
 * @param {Model} model
 * @param {ValueTest} test
 * @returns {RowTest}
 */
function evaluatorTest(model, test) {
  const wanted = new Map(
    model.runs.map((run) => [run, matchingNumbers(run.meta.evaluators, test)]),
  );
  return (row) => {
    const run = model.runOf(row);
    const { evaluatorNames } = run.columns;
    return run.scoresOf(row).some((at) => wanted.get(run)?.has(evaluatorNames[at]));
  };
}

/**
 * Return a test for the scores or the verdicts of an evaluator.
 * @param {Model} model
 * @param {Term} term
 * @param {ValueTest} test
 * @returns {RowTest}
 */
function scoreTest(model, { name, value }, test) {
  const isNumber = !Number.isNaN(numberOf(value));
  const numbers = new Map(model.runs.map((run) => [run, run.meta.evaluators.indexOf(name)]));
  return (row) => {
    const run = model.runOf(row);
    const { evaluatorNames, evaluatorScores, evaluatorFlags } = run.columns;
    return run.scoresOf(row).some((at) => {
      const flags = evaluatorFlags[at];
      if (evaluatorNames[at] !== numbers.get(run) || flags & NOT_APPLICABLE_FLAG) return false;
      if (isNumber) return test(evaluatorScores[at]);
      const isFailure = Boolean(flags & UNJUDGED_FLAG);
      return test(STATES[stateOfVerdictBits(flags)].word) || (isFailure && test(ERROR_WORD));
    });
  };
}
