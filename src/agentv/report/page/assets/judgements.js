// @ts-check
/** The judgements of an answer: verdict, score, hits, misses and reasoning per evaluator. */

/**
 * @import { Child } from "./dom.js"
 * @import { Result } from "./model.js"
 */

import { decorative, el, elWith, srOnly } from "./dom.js";
import { scoreText } from "./format.js";
import { stateMark } from "./marks.js";
import { ERROR, stateOfVerdict } from "./states.js";
import { folded, longText } from "./texts.js";

/**
 * A result's entry for one evaluator. Its fields are not validated.
 * @typedef {Record<string, any>} Judgement
 */

/**
 * Return the judgements of a result, worst first.
 * @param {Result} result
 * @returns {Child}
 */
export function judgements(result) {
  const parts = partsOf(result).toSorted((a, b) => {
    return stateOfVerdict(a.verdict) - stateOfVerdict(b.verdict);
  });
  if (parts.length === 0) return findings(result);
  const showsWeight = parts.length > 1;
  const content = parts.map((part) => judgement(part, showsWeight));
  return judgementSection([...ofTheCase(result), ...content]);
}

/**
 * Return the judgements of two results in two columns, those that differ most first.
 * @param {Result} before
 * @param {Result} after
 */
export function comparedJudgements(before, after) {
  const pairs = judgementPairs(partsOf(before), partsOf(after));
  if (pairs.length === 0) {
    return el(
      "div.sides",
      el("div", el("h3", "A"), findings(before)),
      el("div", el("h3", "B"), findings(after)),
    );
  }
  const rows = pairs.map(([partBefore, partAfter]) => {
    return el("div.sides.pair", judgementSide("A", partBefore), judgementSide("B", partAfter));
  });
  return judgementSection([comparedCase(before, after), ...rows]);
}

/**
 * Return why two results fail apart from their evaluators, in two columns.
 * @param {Result} before
 * @param {Result} after
 * @returns {Child}
 */
function comparedCase(before, after) {
  const columns = [ofTheCase(before), ofTheCase(after)];
  if (!columns.flat().some(Boolean)) return null;
  const sides = columns.map((content, at) => {
    return el("div", el("span.letter", "AB"[at]), content);
  });
  return el("div.sides.pair", sides);
}

/**
 * @param {Result} result
 * @returns {Judgement[]}
 */
function partsOf(result) {
  return Array.isArray(result.evaluator_results) ? result.evaluator_results : [];
}

/**
 * Return the judgements of each evaluator, those that differ most first.
 * @param {Judgement[]} before
 * @param {Judgement[]} after
 * @returns {[Judgement | undefined, Judgement | undefined][]}
 */
function judgementPairs(before, after) {
  const names = new Set([...after, ...before].map((part) => part.name));
  /** @type {[Judgement | undefined, Judgement | undefined][]} */
  const pairs = [...names].map((name) => [
    before.find((part) => part.name === name),
    after.find((part) => part.name === name),
  ]);
  /** @param {[Judgement | undefined, Judgement | undefined]} pair */
  const change = ([one, other]) => Math.abs((other?.score ?? -1) - (one?.score ?? -1));
  return pairs.sort((one, other) => change(other) - change(one));
}

/**
 * @param {string} letter
 * @param {Judgement | undefined} part
 */
function judgementSide(letter, part) {
  const content = part ? judgement(part, false) : el("p.quiet", "not evaluated");
  return el("div", el("span.letter", letter), content);
}

/** @param {Child[]} content */
function judgementSection(content) {
  return el("section.judgements", el("h2", "Evaluators"), content);
}

/**
 * @param {Judgement} part
 * @param {boolean} showsWeight
 */
function judgement(part, showsWeight) {
  const hasWeight = showsWeight && part.weight !== undefined && part.weight !== 1;
  const type = part.type === part.name ? "" : (part.type ?? "");
  const applies = part.applicable !== false;
  const notes = [type, hasWeight ? `weight ${part.weight}` : "", requirement(part)];
  const title = el(
    "h3",
    applies && stateMark(part.failed ? ERROR : stateOfVerdict(part.verdict)),
    " ",
    el("span.judge-name", part.name),
    applies
      ? el("span.number", scoreText(part.score ?? undefined))
      : el("span.quiet", "does not apply"),
    el("span.quiet", notes.filter(Boolean).join(", ")),
  );
  const hasDetails = part.details !== undefined && part.details !== null;
  const request = part.evaluator_provider_request;
  return el(
    "article.judgement",
    title,
    findings(part),
    hasDetails && folded("details", part.details),
    request && folded("judge prompt", request),
  );
}

/**
 * Return why a result fails apart from its evaluators: failed required checks, and misses that no evaluator has, such
 * as why the answer was not judged.
 * @param {Result} result
 * @returns {Child[]}
 */
function ofTheCase(result) {
  return [failedRequired(result), ...findings({ misses: ownMisses(result) })];
}

/**
 * Return the misses of a result that no evaluator has.
 * @param {Result} result
 */
export function ownMisses(result) {
  const ofEvaluators = new Set(partsOf(result).flatMap((part) => listOf(part.misses)));
  return listOf(result.misses).filter((miss) => !ofEvaluators.has(miss));
}

/**
 * Return the names of the required evaluators that the answer failed.
 * @param {Result} result
 * @returns {Child}
 */
function failedRequired(result) {
  const names = listOf(result.failed_required);
  return names.length > 0 && el("p", `Failed required checks: ${names.join(", ")}`);
}

/**
 * Return whether an evaluator is required, or its required score.
 * @param {Judgement} part
 */
function requirement({ required }) {
  if (typeof required === "number") {
    return `at least ${required} required`;
  }
  return required ? "required" : "";
}

/**
 * Return the misses, the hits and the reasoning of a result or of an evaluator.
 * @param {Judgement} judged
 * @returns {Child[]}
 */
function findings({ hits, misses, reasoning }) {
  const items = [
    ...listOf(misses).map((text) => finding(text, "✗", "miss", "missed")),
    ...listOf(hits).map((text) => finding(text, "✓", "hit", "found")),
  ];
  return [
    items.length > 0 && el("ul.findings", items),
    reasoning && el("div.reasoning", longText(String(reasoning))),
  ];
}

/**
 * @param {unknown} value
 * @returns {unknown[]}
 */
function listOf(value) {
  return Array.isArray(value) ? value : [];
}

/**
 * @param {unknown} text
 * @param {string} sign
 * @param {string} kind
 * @param {string} word
 */
function finding(text, sign, kind, word) {
  const content = longText(String(text), (each) => [each]);
  return elWith(
    "li",
    { class: kind },
    decorative("span", sign),
    srOnly(`${word}: `),
    elWith("span", { dir: "auto" }, content),
  );
}
