// @ts-check
/** The header of a page: pass rate, confidence interval and failures. */

/**
 * @import { MetricRow, JudgeHealthFigures, RunFigures, RunMeta } from "../contract"
 * @import { Model } from "./model.js"
 * @import { Child } from "./dom.js"
 * @import { FilterBy } from "./plots.js"
 */

import { button, decorative, definitions, el, elWith } from "./dom.js";
import { countText, durationText, moneyText, numberText, timeText } from "./format.js";
import { evaluatorTable, histogram } from "./plots.js";
import { quoted, quoteTerm } from "./query.js";
import { Scatter } from "./scatter.js";
import { ABSENT, PASS } from "./states.js";

const LISTED_NAMES = 6;
const SHOWN_EXTREMES = 3;
const ERROR_QUERY_CHARACTERS = 60;

/**
 * Return the header of a page on one run.
 * @param {Model} model
 * @param {FilterBy} filterBy
 * @param {AbortSignal} signal ends the header
 */
export function runHeader(model, filterBy, signal) {
  const run = model.run.meta;
  const { figures } = run;
  const isDryRun = figures.dry_run === figures.results;
  const title = [isDryRun ? "Dry run" : "Results", " of ", el("b", shortName(run.file))];
  return el(
    "header.summary",
    el("p.kicker", title),
    headline(run.headline),
    el("p.facts", `${run.facts}.`),
    run.troubles && el("p.troubles", decorative("span", "! "), `${run.troubles}.`),
    metricTable(figures.metrics),
    aboutRun(run),
    omittedNotice(model),
    plots(model, filterBy, signal),
    judgeHealth(figures.judge_health),
    errorGroups(figures, filterBy),
    allPassed(model),
  );
}

/**
 * Return the notice of a page that omits cases that passed.
 * @param {Model} model
 */
export function omittedNotice(model) {
  if (!model.meta.failed_only) return null;
  const which = model.base ? " in one of the runs" : "";
  const listed = `Only the ${countText(model.count, "case")} that did not pass${which} are listed`;
  return el("p.notice", `${listed} (--failed-only). The figures cover all cases.`);
}

/**
 * Return the metrics over a run with their intervals.
 * @param {MetricRow[]} metrics
 */
function metricTable(metrics) {
  const rows = metrics.map(({ name, value, interval }) => [name, value, interval]);
  return figureTable("Metrics", ["", "value", "95% interval"], rows);
}

/**
 * Return a titled table with a name and figures per row, or null if there are no rows.
 * @param {string} title
 * @param {string[]} headings
 * @param {string[][]} rows
 */
export function figureTable(title, headings, rows) {
  if (rows.length === 0) return null;
  const heads = headings.map((heading) => elWith("th", { scope: "col" }, heading));
  const lines = rows.map(([name, ...figures]) => {
    const cells = figures.map((figure) => el("td", figure));
    return el("tr", elWith("th", { scope: "row" }, name), cells);
  });
  return el(
    "section.run-metrics",
    el("h2", title),
    el("table", el("thead", el("tr", heads)), el("tbody", lines)),
  );
}

/**
 * Return the headline. The text after its first figure is less prominent.
 * @param {string} text
 */
export function headline(text) {
  const end = text.search(/ \(|, |:/);
  if (end < 0) return el("h1", text);
  return el("h1", el("strong", text.slice(0, end)), el("span", text.slice(end)));
}

/**
 * Return the name of a file without its folder.
 * @param {string} path
 */
export function shortName(path) {
  const parts = path.split(/[/\\]/);
  return parts[parts.length - 1];
}

// facts

/**
 * Return the details of a run, such as its time, commit and command.
 * @param {RunMeta} run
 */
export function aboutRun({ figures, file }) {
  const branch = figures.branch ? ` on ${figures.branch}` : "";
  /** @type {[string, string | null | undefined][]} */
  const facts = [
    ["when", figures.started && timeText(figures.started)],
    ["commit", figures.commit && `${figures.commit}${branch}`],
    ["target", nameList(figures.targets)],
    ["model", nameList(figures.models)],
    ["dataset", nameList(figures.datasets)],
    ["tokens", tokenText(figures)],
    ["ledger", ledger(figures)],
    ["run", nameList(figures.run_ids)],
    ["agentv", nameList(figures.versions)],
    ["command", figures.command],
    ["file", file],
  ];
  return factList(facts);
}

/** @param {string[]} names */
function nameList(names) {
  if (names.length <= LISTED_NAMES) return names.join(", ");
  const shown = names.slice(0, LISTED_NAMES).join(", ");
  return `${shown} and ${names.length - LISTED_NAMES} more`;
}

/** @param {RunFigures} figures */
function tokenText({ tokens }) {
  if (!tokens) return null;
  const text = `${numberText(tokens.input)} in, ${numberText(tokens.output)} out`;
  if (!tokens.reasoning) return text;
  return `${text}, ${numberText(tokens.reasoning)} of them reasoning`;
}

/**
 * Return the number of results by outcome, written as a sum.
 * @param {RunFigures} figures
 */
function ledger(figures) {
  const errors = figures.target_errors + figures.timeouts + figures.machine_failures;
  const scored = figures.results - errors - figures.judge_failures;
  const parts = [countText(scored, "scored", "scored")];
  if (figures.target_errors) parts.push(countText(figures.target_errors, "target error"));
  if (figures.timeouts) parts.push(countText(figures.timeouts, "timeout"));
  if (figures.judge_failures) parts.push(countText(figures.judge_failures, "judge failure"));
  if (figures.machine_failures) parts.push(countText(figures.machine_failures, "machine failure"));
  if (figures.invalid) parts.push(countText(figures.invalid, "invalid", "invalid"));
  if (figures.not_run) parts.push(countText(figures.not_run, "not run", "not run"));
  const sum = parts.join(" + ");
  if (figures.unfinished) return sum; // the number of planned cases is not in the record yet
  const planned = `${numberText(figures.planned ?? figures.results)} planned = ${sum}`;
  if (!figures.skipped) return planned;
  return `${planned}; ${countText(figures.skipped, "skipped", "skipped")}`; // not part of the plan
}

/**
 * Return a list of names and texts. Facts without text are omitted.
 * @param {[string, string | null | undefined][]} facts
 */
function factList(facts) {
  const known = facts.filter(([, text]) => text);
  return el("dl.about", definitions(known));
}

// plots

/**
 * Return the three plots of the run that the table is about.
 * @param {Model} model
 * @param {FilterBy} filterBy
 * @param {AbortSignal} signal
 */
export function plots(model, filterBy, signal) {
  const { figures } = model.run.meta;
  const base = model.base?.meta.figures;
  const scatter = new Scatter(model, filterBy, signal);
  /** @param {string} name */
  const showJudgedBy = (name) => filterBy(`evaluator:${quoteTerm(name)}`);
  const scores = el(
    "section",
    el("h2", "Scores ", base && el("small", "B, with A in grey")),
    histogram(figures.histogram, base?.histogram, filterBy),
  );
  const evaluators = el(
    "section",
    el("h2", "Evaluators"),
    evaluatorTable(figures.evaluators, base?.evaluators, showJudgedBy),
  );
  return el(
    "div.plots",
    scores,
    figures.evaluators.length > 0 && evaluators,
    model.count > 1 && scatter.hasMeasure && el("section", scatter.elements()),
  );
}

// judges, errors, and runs without failures

/**
 * Return the verdict on the judges and its reasons.
 * @param {JudgeHealthFigures | null} health
 */
function judgeHealth(health) {
  if (!health) return null;
  return elWith(
    "details.judge",
    { open: health.verdict === "untrusted" },
    el("summary", "Judge: ", el("b", health.verdict)),
    factList(health.facts),
  );
}

/**
 * Return the errors, grouped by their text.
 * @param {RunFigures} figures
 * @param {FilterBy} filterBy
 */
export function errorGroups({ errors }, filterBy) {
  if (errors.length === 0) return null;
  const items = errors.map(({ text, count }) => {
    const query = `error:yes ${quoted(text.slice(0, ERROR_QUERY_CHARACTERS))}`;
    const times = el("b", `${count}×`);
    return el(
      "li",
      button("plain", () => filterBy(query), times, " ", text || "(no text)"),
    );
  });
  return el("section.errors", el("h2", "Errors"), el("ul", items));
}

/**
 * Return the slowest and most expensive cases if every case of the run passed.
 * @param {Model} model
 */
function allPassed(model) {
  const { states, durations, costs } = model.run.cases;
  const text = "✓ Every case passed.";
  if (model.count === 0) return el("p.all-passed", text);
  if (model.meta.failed_only) return null;
  if (states.some((state) => state !== PASS && state !== ABSENT)) return null;
  return el(
    "div.all-passed",
    el("p", text),
    model.count > SHOWN_EXTREMES && [
      extremes(model, "Slowest", "duration", durations, durationText),
      extremes(model, "Most expensive", "cost", costs, moneyText),
    ],
  );
}

/**
 * Return the cases with the largest values, as links.
 * @param {Model} model
 * @param {string} title
 * @param {string} column
 * @param {Float64Array} values
 * @param {(value: number) => string} valueText
 */
function extremes(model, title, column, values, valueText) {
  const largest = model.order(column, true).subarray(0, SHOWN_EXTREMES);
  const rows = [...largest].filter((row) => values[row] > 0);
  if (rows.length === 0) return null;
  /** @type {Child[]} */
  const links = rows.map((row, at) => {
    const id = model.id(row);
    const link = elWith("a", { href: `#case=${encodeURIComponent(id)}` }, id);
    return [at > 0 ? ", " : "", link, ` ${valueText(values[row])}`];
  });
  return el("p", `${title}: `, links);
}
