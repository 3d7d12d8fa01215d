/** The top of a page: how good, how sure, what failed. */

import { el } from "./dom.js";
import { ABSENT, countText, durationText, moneyText, PASS, timeText } from "./format.js";
import { evaluatorTable, histogram, Scatter } from "./plots.js";
import { quoteTerm } from "./query.js";

/** Returns the sentence that everybody reads; what follows the first figure is set more quietly. */
export function headline(text) {
  const at = text.search(/ \(|, |:/);
  return el("h1", null, at < 0 ? text : [el("strong", null, text.slice(0, at)), el("span", null, text.slice(at))]);
}

/** Returns the header of a page on one run. */
export function runHeader(model, filterBy) {
  const run = model.run.meta;
  return el("header", { class: "summary" },
    el("p", { class: "kicker" }, run.figures.dry_run === run.figures.results ? "Dry run" : "Results", " of ", el("b", null, shortName(run.file))),
    headline(run.headline),
    el("p", { class: "facts" }, `${run.facts}.`),
    run.troubles && el("p", { class: "troubles" }, el("span", { "aria-hidden": "true" }, "! "), `${run.troubles}.`),
    aboutRun(run),
    model.meta.failed_only && el("p", { class: "notice" }, `Only the ${countText(model.count, "case")} that did not pass are in this report (--failed-only); the figures are those of all.`),
    plots(model, filterBy),
    judgeHealth(run.figures.judge_health),
    errorGroups(run.figures, filterBy),
    allPassed(model));
}

export function shortName(path) {
  return path.split(/[/\\]/).at(-1);
}

/** Returns when, where and how a run was made, in small print. */
export function aboutRun({ figures, file }) {
  const tokens = figures.tokens && `${figures.tokens.input.toLocaleString("en")} in, ${figures.tokens.output.toLocaleString("en")} out${figures.tokens.reasoning ? `, ${figures.tokens.reasoning.toLocaleString("en")} of them reasoning` : ""}`;
  const list = (names) => names.length > 6 ? `${names.slice(0, 6).join(", ")} and ${names.length - 6} more` : names.join(", ");
  const facts = [
    ["when", figures.started && timeText(figures.started)],
    ["commit", figures.commit && `${figures.commit}${figures.branch ? ` on ${figures.branch}` : ""}`],
    ["target", list(figures.targets)],
    ["model", list(figures.models ?? [])],
    ["dataset", list(figures.datasets)],
    ["tokens", tokens],
    ["ledger", ledger(figures)],
    ["run", list(figures.run_ids)],
    ["agentv", list(figures.versions)],
    ["command", figures.command],
    ["file", file],
  ].filter(([, value]) => value);
  return factList(facts);
}

function factList(facts) {
  return el("dl", { class: "about" }, facts.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

function ledger(figures) {
  const without = figures.target_errors + figures.timeouts + figures.judge_failures;
  const counts = [[figures.results - without, "scored", "scored"], [figures.target_errors, "target error"], [figures.timeouts, "timeout"], [figures.judge_failures, "judge failure"], [figures.skipped, "skipped", "skipped"], [figures.not_run, "not run", "not run"]];
  const said = counts.filter(([count], at) => count || at === 0).map((each) => countText(...each)).join(" + ");
  if (figures.unfinished) return said; // the record does not tell yet how many were planned
  return `${(figures.planned ?? figures.results).toLocaleString("en")} planned = ${said}`;
}

/** Returns the three plots of the run that the table is about. */
export function plots(model, filterBy) {
  const { figures } = model.run.meta;
  const scatter = new Scatter(model, filterBy);
  return el("div", { class: "plots" },
    el("section", null, el("h2", null, "Scores ", model.base && el("small", null, "B, with A in grey")), histogram(figures.histogram, model.base?.meta.figures.histogram, filterBy)),
    figures.evaluators.length > 0 && el("section", null, el("h2", null, "Evaluators"), evaluatorTable(figures.evaluators, model.base?.meta.figures.evaluators, (name, value) => filterBy(`${name}:${quoteTerm(value)}`))),
    model.count > 1 && scatter.measure && el("section", null, scatter.element()));
}

/** Returns whether the judges can be trusted, and what that rests on. */
function judgeHealth(health) {
  return health && el("details", { class: "judge", open: health.verdict === "untrusted" }, el("summary", null, "Judge: ", el("b", null, health.verdict)), factList(health.facts));
}

/** Returns what went wrong, the same texts together. */
export function errorGroups(figures, filterBy) {
  if (!figures.errors.length) return null;
  return el("section", { class: "errors" }, el("h2", null, "Errors"), el("ul", null, figures.errors.map(({ text, count }) => el("li", null,
    el("button", { type: "button", class: "plain", on: { click: () => filterBy(`error:yes ${quoteTerm(text.slice(0, 60))}`) } }, el("b", null, `${count}×`), " ", text || "(no text)")))));
}

/** Returns the slowest and the dearest cases of a run in which nothing failed. */
function allPassed(model) {
  if (model.meta.failed_only || !model.count) return model.count ? null : el("p", { class: "all-passed" }, "✓ Every case passed.");
  for (let row = 0; row < model.count; row++) if (model.run.rowStates[row] !== PASS && model.run.rowStates[row] !== ABSENT) return null;
  const extremes = [["Slowest", "duration", model.run.rowDurations, durationText], ["Dearest", "cost", model.run.rowCosts, moneyText]];
  return el("div", { class: "all-passed" }, el("p", null, "✓ Every case passed."),
    model.count > 3 && extremes.map(([title, column, values, text]) => {
      const rows = [...model.order(column, true).subarray(0, 3)].filter((row) => values[row] > 0);
      return rows.length > 0 && el("p", null, `${title}: `, rows.map((row, at) => [at ? ", " : "", el("a", { href: `#case=${encodeURIComponent(model.id(row))}` }, model.id(row)), ` ${text(values[row])}`]));
    }));
}
