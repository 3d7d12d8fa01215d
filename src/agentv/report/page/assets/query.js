// @ts-check
/**
 * Parses filters such as `verdict:fail score<0.5 "two words" -tag:slow` into terms.
 *
 * The command line uses the same language (`agentv.filters.parse`), and both must pass the test
 * vectors in `tests/kits/filters.json`. Only pages support text search.
 */

import { FILTER_KEYS, FILTERED } from "./constants.js";

/**
 * What a filter selects: cases, results, or the cases of a comparison.
 * @typedef {"cases" | "results" | "comparisons"} On
 *
 * A part of a filter.
 * @typedef {object} Term
 * @property {string} source what was typed
 * @property {string} key a key of `FILTER_KEYS`, or `text`
 * @property {string} name what follows the key, such as `level` in `metadata.level`, or nothing
 * @property {string} operator `:`, `<`, `<=`, `>` or `>=`
 * @property {string} value
 * @property {boolean} isNegated
 * @property {string} problem why the term cannot be used; empty if it can
 */

/** The key of a text to search for. */
export const TEXT = "text";
/** The characters that separate terms, the same as in Python. */
const SPACES = " \\t\\n\\r\\f\\v";
const QUOTED = '"(?:\\\\["\\\\]|\\\\(?!["\\\\])|[^"\\\\])*"';
const TERM = new RegExp(
  [
    "(?<minus>-?)",
    `(?<key>[^${SPACES}"<>=:.]+)`,
    `(?:\\.(?<name>${QUOTED}|[^${SPACES}"<>=:]+))?`,
    "(?<operator><=|>=|<|>|=|:)",
    `(?<value>${QUOTED}|(?!")[^${SPACES}]*)`,
    `(?=[${SPACES}]|$)`,
  ].join(""),
  "y",
);
const WORD = new RegExp(`-?${QUOTED}|[^${SPACES}]+`, "y");
const GAP = new RegExp(`[${SPACES}]*`, "y");
const TEXT_AFTER_QUOTE = new RegExp(`^-?[^${SPACES}"<>=:]+[<>=:]+"`);
const WHOLE_QUOTED = new RegExp(`^${QUOTED}$`);
const NUMBER = /^[-−]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;
/** @type {Record<string, string>} */
const OPERATOR_SIGNS = { ":": "is", "<": "<", ">": ">", "<=": "≤", ">=": "≥" };

/**
 * Return the terms of a filter.
 * @param {string} text
 * @param {On} on
 * @returns {Term[]}
 */
export function parseQuery(text, on) {
  const terms = [];
  for (let at = skip(GAP, text, 0); at < text.length; at = skip(GAP, text, at)) {
    TERM.lastIndex = at;
    const found = TERM.exec(text);
    const term = found ? fieldTerm(found, on) : textTerm(text, at);
    at += term.source.length;
    terms.push(term);
  }
  return terms;
}

/**
 * Return the end of the match that starts at a position.
 * @param {RegExp} regex
 * @param {string} text
 * @param {number} at
 */
function skip(regex, text, at) {
  regex.lastIndex = at;
  regex.exec(text);
  return regex.lastIndex;
}

/**
 * @param {RegExpExecArray} found
 * @param {On} on
 * @returns {Term}
 */
function fieldTerm(found, on) {
  const groups = /** @type {Record<string, string>} */ (found.groups);
  const term = {
    source: found[0],
    key: groups.key,
    name: unquote(groups.name ?? ""),
    operator: groups.operator === "=" ? ":" : groups.operator,
    value: unquote(groups.value),
    isNegated: Boolean(groups.minus),
    problem: "",
  };
  term.problem = keyProblem(term, on);
  if (!term.problem && !groups.value) term.problem = `a value is missing after '${found[0]}'`;
  if (!term.problem) term.problem = valueProblem(term);
  return term;
}

/**
 * Return the word at a position as a text to search for. It has a problem if it looks like another
 * kind of term.
 * @param {string} text
 * @param {number} at
 * @returns {Term}
 */
function textTerm(text, at) {
  const rest = text.slice(at);
  const word = text.slice(at, skip(WORD, text, at));
  const isNegated = word.length > 1 && word.startsWith("-");
  const value = isNegated ? word.slice(1) : word;
  /** @type {Term} */
  const term = { source: word, key: TEXT, name: "", operator: ":", value, isNegated, problem: "" };
  if (WHOLE_QUOTED.test(value)) return { ...term, value: unquote(value).toLowerCase() };
  if (word.includes('"') && hasOpenQuote(rest)) {
    return { ...term, source: rest, problem: `the closing quote is missing in '${rest}'` };
  }
  if (TEXT_AFTER_QUOTE.test(word)) term.problem = "unexpected text after a closing quote";
  else if (/[<>=:]/.test(word)) term.problem = `'${word}' does not start with a key`;
  return { ...term, value: value.toLowerCase() };
}

/** @param {string} text */
function hasOpenQuote(text) {
  return text.replace(/\\["\\]/g, "").split('"').length % 2 === 0;
}

/** @param {string} text */
function unquote(text) {
  return text.startsWith('"') ? text.slice(1, -1).replace(/\\(["\\])/g, "$1") : text;
}

/**
 * Return a text as a number, or NaN if it is not one.
 * @param {string} text
 */
export function numberOf(text) {
  return NUMBER.test(text) ? Number(text.replace("−", "-")) : NaN;
}

/**
 * Return a value as it is written in a filter: quoted if it contains spaces.
 * @param {string} text
 */
export function quoteTerm(text) {
  const needsQuotes = /^$|^"|[ \t\n\r\f\v]/.test(text);
  return needsQuotes ? quoted(text) : text;
}

/**
 * Return a quoted text, which a filter searches for regardless of its content.
 * @param {string} text
 */
export function quoted(text) {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

// problems

/**
 * Return the problem with the key of a term, or an empty string.
 * @param {Term} term
 * @param {On} on
 */
function keyProblem(term, on) {
  const key = Object.hasOwn(FILTER_KEYS, term.key) ? FILTER_KEYS[term.key] : null;
  if (!key) return `unknown key '${term.key}'`;
  if (FILTERED.indexOf(key.on) > FILTERED.indexOf(on)) return `${on} have no ${term.key}`;
  if (key.needsName && !term.name) return `${term.key} needs a name`;
  const takesName = key.needsName || key.values === "evaluator";
  return term.name && !takesName ? `${term.key} takes no name` : "";
}

/**
 * Return the problem with the value of a term, or an empty string.
 * @param {Term} term
 */
function valueProblem({ key, name, operator, value }) {
  const { values, choices = [] } = FILTER_KEYS[key];
  const isOfEvaluator = values === "evaluator" && name !== "";
  const takesNumbers = values === "any" || values === "number" || isOfEvaluator;
  const isNumber = !Number.isNaN(numberOf(value));
  if (operator !== ":" && !takesNumbers) return `${key} is not a number`;
  if ((operator !== ":" || values === "number") && !isNumber) return `'${value}' is not a number`;
  if (isOfEvaluator && isNumber) return "";
  const isChoice = values === "choice" || isOfEvaluator;
  if (!isChoice || choices.includes(value)) return "";
  return `'${value}' is not one of ${choices.join(", ")}`;
}

/**
 * Return the keys that a filter accepts, as they are written.
 * @param {On} on
 */
export function keysOn(on) {
  const last = FILTERED.indexOf(on);
  return Object.entries(FILTER_KEYS)
    .filter(([, key]) => FILTERED.indexOf(key.on) <= last)
    .map(([name, key]) => (key.needsName ? `${name}.KEY` : name));
}

// words

/**
 * Return a term in plain words.
 * @param {Term} term
 */
export function describeTerm(term) {
  const { source, key, name, operator, value, isNegated, problem } = term;
  if (problem) return `${source} (${problem})`;
  const not = isNegated ? "not " : "";
  const isWanted = (value === "yes") !== isNegated;
  switch (key) {
    case TEXT:
      return `${not}“${value}” in id, question or answer`;
    case "error":
      return isWanted ? "ended in an error" : "no error";
    case "note":
      return isWanted ? "has a note" : "no note";
    case "flip":
      return `${not}${value === "no" ? "unchanged" : value}`;
    default:
  }
  if (key === "evaluator" && !name) return `${not}judged by ${value}`;
  const field = name ? `${key} ${name}` : key;
  const unit = key === "duration" ? " ms" : "";
  if (operator === ":") return `${field} is ${not}${value || "empty"}${unit}`;
  return `${not}${field} ${OPERATOR_SIGNS[operator]} ${value}${unit}`;
}
