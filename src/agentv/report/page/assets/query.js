/** The filter language: `verdict:fail score<0.5 "two words" -target:x` -> terms, and terms -> the rows that fit. */

import { ABSENT, BORDERLINE, ERROR, FAIL, PASS } from "./format.js";
import { BROKEN, FIXED } from "./model.js";

const TOKEN = /(-?)([a-z]+)(<=|>=|<|>|=|:)("[^"]*"?|\S*)|-?"[^"]*"?|\S+/gi;
const NUMBERS = ["score", "duration", "cost", "delta"];
const WORDS = ["verdict", "target", "dataset", "evaluator", "error", "id", "flip", "note"];
const CHOICES = {
  verdict: ["pass", "borderline", "fail", "error"],
  error: ["yes", "no"],
  note: ["yes", "no"],
  flip: ["broken", "fixed", "no"],
};

/** Returns the terms of a filter: `{source, kind, name, operator, value, negated, problem}` each. */
export function parseQuery(text) {
  return [...text.matchAll(TOKEN)].map(parseTerm);
}

function parseTerm(match) {
  const [source, minus, written, operator, quoted] = match;
  const name = written?.toLowerCase();
  if (name && WORDS.includes(name) && (operator === ":" || operator === "=")) {
    const value = unquote(quoted).toLowerCase();
    const choices = CHOICES[name];
    const problem = value === "" ? "say what" : choices && !choices.includes(value) ? `one of ${choices.join(", ")}` : "";
    return { source, kind: "word", name, operator: ":", value, negated: Boolean(minus), problem };
  }
  if (name && NUMBERS.includes(name)) {
    const value = Number(unquote(quoted).replace("−", "-"));
    const problem = unquote(quoted) === "" || Number.isNaN(value) ? "a number is missing" : "";
    return { source, kind: "number", name, operator: operator === ":" ? "=" : operator, value, negated: Boolean(minus), problem };
  }
  const negated = source.length > 1 && source.startsWith("-");
  const value = unquote(negated ? source.slice(1) : source).toLowerCase();
  return { source, kind: "text", name: "text", operator: ":", value, negated, problem: "" };
}

function unquote(text) {
  return text.startsWith('"') ? text.slice(1).replace(/"$/, "") : text;
}

/** Returns the words of a filter value as they must be written in the filter box. */
export function quoteTerm(text) {
  return /[\s"]/.test(text) || text === "" ? `"${text.replaceAll('"', "")}"` : text;
}

/** Returns a term in plain words. */
export function describeTerm(term) {
  if (term.problem) return `${term.source} (${term.problem})`;
  const not = term.negated ? "not " : "";
  if (term.kind === "text") return `${not}“${term.value}” in id, question or answer`;
  if (term.kind === "number") return `${not}${term.name} ${{ "<": "<", ">": ">", "<=": "≤", ">=": "≥", "=": "=" }[term.operator]} ${term.value}${term.name === "duration" ? " ms" : ""}`;
  if (term.name === "error") return (term.value === "yes") !== term.negated ? "ended in an error" : "no error";
  if (term.name === "note") return (term.value === "yes") !== term.negated ? "has a note" : "no note";
  if (term.name === "evaluator") return `${not}judged by ${term.value}`;
  if (term.name === "flip") return { broken: `${not}broken`, fixed: `${not}fixed`, no: `${not}unchanged` }[term.value];
  return `${term.name} is ${not}${term.value}`;
}

/** Returns a function that tells whether a row fits all the terms that the index can answer. */
export function rowFilter(model, terms) {
  const tests = terms.filter((term) => term.kind !== "text" && !term.problem).map((term) => {
    const test = rowTest(model, term);
    return term.negated ? (row) => !test(row) : test;
  });
  return (row) => tests.every((test) => test(row));
}

function rowTest(model, { name, operator, value }) {
  switch (name) {
    case "score": return compareBy(operator, value, (row) => model.score(row));
    case "duration": return compareBy(operator, value, (row) => model.runOf(row).rowDurations[row]);
    case "cost": return compareBy(operator, value, (row) => model.runOf(row).rowCosts[row]);
    case "delta": return compareBy(operator, value, (row) => model.deltas?.[row] ?? NaN);
    case "verdict": return verdictTest(model, value);
    case "error": return (row) => hasError(model, row) === (value === "yes");
    case "note": return (row) => hasFlag(model, row, 32 | 64) === (value === "yes");
    case "flip": return (row) => flipWord(model, row) === value;
    case "id": return (row) => model.id(row).toLowerCase().includes(value);
    case "evaluator": return evaluatorTest(model, value);
    default: return nameTest(model, name, value);
  }
}

function compareBy(operator, value, read) {
  switch (operator) {
    case "<": return (row) => read(row) < value;
    case ">": return (row) => read(row) > value;
    case "<=": return (row) => read(row) <= value;
    case ">=": return (row) => read(row) >= value;
    default: return (row) => Math.abs(read(row) - value) < 0.005;
  }
}

/** Errors count as `fail`, and can be asked for alone. */
function verdictTest(model, word) {
  if (word === "fail") return (row) => model.state(row) === FAIL || model.state(row) === ERROR;
  const wanted = { pass: PASS, borderline: BORDERLINE, error: ERROR }[word];
  return (row) => model.state(row) === wanted;
}

function hasError(model, row) {
  return hasFlag(model, row, 4);
}

function hasFlag(model, row, bits) {
  return model.runs.some((run) => run.rowStates[row] !== ABSENT && run.resultsOf(row).some((at) => run.flags[at] & bits));
}

function flipWord(model, row) {
  const flip = model.flips?.[row];
  return flip === BROKEN ? "broken" : flip === FIXED ? "fixed" : "no";
}

function evaluatorTest(model, word) {
  const wanted = model.runs.map((run) => numbersOf(run.meta.evaluators, word));
  return (row) => model.runs.some((run, at) => wanted[at].size > 0 && run.hasEvaluator(row, wanted[at]));
}

function nameTest(model, name, word) {
  const column = `${name}s`;
  const wanted = model.runs.map((run) => numbersOf(run.meta[column], word));
  return (row) => model.runs.some((run, at) => run.resultsOf(row).some((result) => wanted[at].has(run[column][result])));
}

/** Returns the numbers of the names that are this word, in any case of letters; `*` stands for any text. */
function numbersOf(names, word) {
  const pattern = new RegExp(`^${word.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`, "is");
  return new Set(names.flatMap((name, number) => (pattern.test(name) ? [number] : [])));
}
