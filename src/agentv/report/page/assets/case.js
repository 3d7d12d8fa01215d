// @ts-check
/**
 * The page of a case: question, answer and scores with their reasons. A comparison shows both
 * answers and their differences.
 */

/**
 * @import { Child } from "./dom.js"
 * @import { Model, Result, Run } from "./model.js"
 */

import { answersDiff } from "./answers.js";
import { button, copyText, definitions, el, elWith } from "./dom.js";
import {
  countText,
  durationText,
  moneyText,
  numberText,
  scoreText,
  signedText,
  timeText,
} from "./format.js";
import { comparedJudgements, judgements } from "./judgements.js";
import { caseMarkdown } from "./markdown.js";
import { stateMark, stateSign } from "./marks.js";
import { changedFiles } from "./patch.js";
import { codeBlock, folded, longText } from "./texts.js";
import { traceSection } from "./trace.js";

/**
 * The actions of a case page.
 * @typedef {object} CaseActions
 * @property {() => void} close
 * @property {(by: number) => void} step to the next case, or the previous one
 * @property {(name: number) => void} showTrial
 */

/**
 * The position of a case in the list, and the trial to show.
 * @typedef {object} CasePlace
 * @property {number} row
 * @property {string | undefined} trial
 * @property {string} position such as "3 of 40"
 */

/**
 * Return the elements of a case.
 * @param {Model} model
 * @param {CasePlace} place
 * @param {CaseActions} actions
 * @returns {Promise<Child[]>}
 */
export async function drawCase(model, place, actions) {
  const { row } = place;
  const run = model.runOf(row);
  const results = run.resultsOf(row);
  const trial = Math.max(0, trialPlace(run, results, Number(place.trial)));
  const name = trialName(run, results[trial], trial);
  const isCompared = model.base !== null && run !== model.base;
  const [result, before] = await Promise.all([
    readTrial(run, row, name),
    isCompared ? readTrial(model.base, row, name) : null,
  ]);
  if (!result) throw new Error("it has no result");
  const sides = before
    ? [
        { letter: "A", result: before },
        { letter: "B", result },
      ]
    : [];
  return [
    caseHead(model, place, result, actions),
    results.length > 1 && trialTabs(run, results, trial, actions),
    el(
      "div.case-body",
      warnings(result),
      before ? comparedBody(model, row, before, result) : singleBody(result),
      model.base &&
        !before &&
        notice(`Only run ${run.meta.letter} has ${missingPart(model, row, name)}.`),
      changedFiles(before ? sides : [{ letter: "", result }]),
      traceSection(result, !model.meta.traces, before ? " of B" : ""),
      metrics(result),
    ),
  ];
}

/**
 * Return a trial of a case by its name; null if the run does not have it.
 * @param {Run | null} run
 * @param {number} row
 * @param {number} name
 * @returns {Promise<Result | null>}
 */
async function readTrial(run, row, name) {
  if (!run) return null;
  const results = run.resultsOf(row);
  const place = trialPlace(run, results, name);
  return place < 0 ? null : run.result(results[place]);
}

/**
 * Return a name for the part that the other run lacks: the whole case, or one trial.
 * @param {Model} model
 * @param {number} row
 * @param {number} name of the trial
 */
function missingPart(model, row, name) {
  const isInBoth = model.runs.every((run) => run.resultsOf(row).length > 0);
  return isInBoth ? `trial ${name} of this case` : "this case";
}

// the head

/**
 * @param {Model} model
 * @param {CasePlace} place
 * @param {Result} result
 * @param {CaseActions} actions
 */
function caseHead(model, { row, position }, result, actions) {
  const copied = elWith("span.copied", { role: "status" });
  const copy = async () => {
    const isCopied = await copyText(caseMarkdown(result));
    copied.textContent = isCopied ? "copied" : "could not copy";
  };
  const tools = el(
    "div.case-tools",
    iconButton("←", "close this case (Esc)", actions.close),
    iconButton("↑", "previous case (k)", () => actions.step(-1)),
    iconButton("↓", "next case (j)", () => actions.step(1)),
    el("span.case-place", position),
    copied,
    iconButton("copy", "copy as Markdown (c)", copy),
  );
  const facts = [result.dataset, result.target, result.description, sourceLine(result, ":")];
  const line = el(
    "p.case-line",
    stateMark(model.state(row)),
    " ",
    el("span.score-word", `score ${scoreText(result.score)}`),
    facts.filter(Boolean).map((text) => el("span.fact", text)),
  );
  const title = elWith("h1", { tabindex: "-1", id: "case-title" }, result.eval_id);
  return el("header.case-head", tools, title, line);
}

/**
 * @param {string} label
 * @param {string} title
 * @param {() => void} onClick
 */
function iconButton(label, title, onClick) {
  return button({ class: "icon", title, "aria-label": title }, onClick, label);
}

/**
 * Return the file of a case, and its line if that is known.
 * @param {Result} result
 * @param {string} separator
 */
function sourceLine({ file, line }, separator) {
  return file && line ? `${file}${separator}${line}` : file;
}

// trials

/**
 * Return the name of a trial: its number, or its position if the results have no trial numbers.
 * @param {Run} run
 * @param {number} result
 * @param {number} place among the results of the case
 */
export function trialName(run, result, place) {
  return run.columns.trials[result] || place + 1;
}

/**
 * Return the index of the trial with a name, or -1 if it does not exist.
 * @param {Run} run
 * @param {Uint32Array} results
 * @param {number} name
 */
function trialPlace(run, results, name) {
  return results.findIndex((result, at) => trialName(run, result, at) === name);
}

/**
 * @param {Run} run
 * @param {Uint32Array} results
 * @param {number} place
 * @param {CaseActions} actions
 */
function trialTabs(run, results, place, actions) {
  const tabs = [...results].map((result, at) => {
    const name = trialName(run, result, at);
    return button(
      { "aria-pressed": String(at === place) },
      () => actions.showTrial(name),
      stateSign(run.cases.stateOf(result)),
      ` trial ${name}, ${scoreText(run.columns.scores[result])}`,
    );
  });
  return elWith("nav.trials", { "aria-label": "trials" }, tabs);
}

// warnings

/**
 * @param {Result} result
 * @returns {Child[]}
 */
function warnings(result) {
  const hasNote = Boolean(result.note);
  const isUnjudged = result.failure === "judge" && !result.error;
  const isCutOff = result.stop_reason === "length" && !hasNote;
  return [
    errorSection(result),
    isUnjudged && notice("! Not judged, so this score says nothing about the answer."),
    hasNote && elWith("p.notice", { dir: "auto" }, String(result.note)),
    isCutOff && notice("The answer was cut off at the token limit."),
    Boolean(result.dry_run) && notice("Dry run: the answer comes from a mock."),
    maskedNotice(result),
  ];
}

/**
 * Return the names of the secrets whose values are masked.
 * @param {Result} result
 */
function maskedNotice({ masked }) {
  if (!Array.isArray(masked) || masked.length === 0) return null;
  return notice(`Masked in this result: ${masked.join(", ")}`);
}

/** @param {string} text */
function notice(text) {
  return el("p.notice", text);
}

/** @param {Result} result */
function errorSection({ error, failure, error_details: details }) {
  if (error === undefined || error === null) return null;
  let title = "Error";
  if (failure === "timeout") title = "Timeout";
  if (failure === "judge") title = "Judge failure";
  return elWith(
    "section.notice.failed",
    { "aria-label": "error" },
    el("h2", title),
    longText(plainText(error), codeBlock),
    details && folded("traceback", details),
  );
}

// question and answer

/** @param {Result} result */
function singleBody(result) {
  return el(
    "div.sides",
    el("div", questionSections(result)),
    el("div", textSection("Answer", result.candidate_answer, "No answer."), judgements(result)),
  );
}

/**
 * @param {Model} model
 * @param {number} row
 * @param {Result} before
 * @param {Result} after
 * @returns {Child[]}
 */
function comparedBody(model, row, before, after) {
  const [statesBefore, statesAfter] = model.runs.map((run) => run.cases.states);
  const delta = (after.score ?? 0) - (before.score ?? 0);
  const scores = el(
    "p.both-scores",
    "A ",
    stateMark(statesBefore[row]),
    ` ${scoreText(before.score)}`,
    el("span.arrow", "→"),
    "B ",
    stateMark(statesAfter[row]),
    ` ${scoreText(after.score)}`,
    el("span.change", signedText(delta)),
  );
  const errorBefore = `A ended in an error: ${String(before.error)}`;
  return [
    scores,
    questionSections({ ...before, ...after }),
    answersDiff(before.candidate_answer ?? "", after.candidate_answer ?? ""),
    Boolean(before.error) && el("p.notice.failed", errorBefore),
    comparedJudgements(before, after),
  ];
}

/**
 * @param {Result} result
 * @returns {Child[]}
 */
function questionSections(result) {
  return [
    textSection("Question", result.question, "The question is not in these results."),
    textSection("Expected", result.expected_outcome),
    textSection("Reference answer", result.reference_answer),
  ];
}

/**
 * Return a section with a text. If the text is missing, it shows `absent`, or is omitted.
 * @param {string} title
 * @param {unknown} text
 * @param {string} [absent]
 */
function textSection(title, text, absent = "") {
  const isAbsent = text === undefined || text === null || text === "";
  if (isAbsent && !absent) return null;
  const content = isAbsent ? el("p.quiet", absent) : longText(plainText(text));
  return el("section", el("h2", title), content);
}

/**
 * Return a text unchanged, and any other value as JSON.
 * @param {unknown} value
 */
function plainText(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

// about the result

/** @param {Result} result */
function metrics(result) {
  const measured = result.execution_metrics ?? {};
  /** @type {[string, any][]} */
  const facts = [
    ["duration", measuredText(measured.duration_ms, durationText)],
    ["first token", measuredText(measured.ttft_ms, durationText)],
    ["cost", measuredText(measured.cost_usd, moneyText)],
    ["tokens", tokenText(measured.token_usage ?? {})],
    ["attempts", result.attempt > 1 && result.attempt],
    ["stopped by", result.stop_reason],
    ["when", result.timestamp && timeText(result.timestamp)],
    ["run", result.run_id],
    ["conversation", result.conversation_id],
    ["workspace", result.workspace_path],
    ["defined in", sourceLine(result, ", line ")],
    ["tags", Array.isArray(result.tags) && result.tags.join(", ")],
    ["variables", result.vars && pairsText(result.vars, ": ")],
    ["metadata", result.metadata && pairsText(result.metadata, ": ")],
    ["digests", result.digests && pairsText(result.digests, " ")],
  ];
  const known = facts.filter(([, value]) => value);
  if (known.length === 0) return null;
  const title = el("h2", "About this result");
  return el("section.metrics", title, el("dl", definitions(known)));
}

/**
 * @param {unknown} value
 * @param {(value: number) => string} format
 */
function measuredText(value, format) {
  return value === undefined ? "" : format(Number(value));
}

/** @param {Record<string, number>} tokens */
function tokenText({ input, output, cached, reasoning }) {
  if (!input && !output) return "";
  const parts = [`${numberText(input ?? 0)} in`, `${numberText(output ?? 0)} out`];
  if (cached) parts.push(`${numberText(cached)} cached`);
  if (reasoning) parts.push(`${numberText(reasoning)} reasoning`);
  return parts.join(", ");
}

/**
 * @param {Record<string, unknown>} values
 * @param {string} separator
 */
function pairsText(values, separator) {
  const pairs = Object.entries(values).map(([key, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return `${key}${separator}${text}`;
  });
  return pairs.join(", ");
}
