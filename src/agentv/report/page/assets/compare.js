/** The top of a page that compares two runs: better or worse, how sure, which cases changed sides. */

import { el } from "./dom.js";
import { countText, scoreText, signedText } from "./format.js";
import { aboutRun, errorGroups, headline, plots, shortName } from "./header.js";
import { BROKEN, FIXED } from "./model.js";
import { intervalPlot } from "./plots.js";
import { routeHash, rowRoute } from "./route.js";

const SHOWN_FLIPS = 8;

export function comparisonHeader(model, filterBy) {
  const { comparison, headline: text } = model.meta;
  const [before, after] = model.runs.map((run) => run.meta);
  return el("header", { class: "summary" },
    el("p", { class: "kicker" }, "Comparison of ", el("b", null, shortName(before.file)), " (A) with ", el("b", null, shortName(after.file)), " (B)"),
    headline(text),
    el("ul", { class: "notes" }, comparison.notes.map((note) => el("li", null, note))),
    comparison.delta && el("figure", { class: "difference" },
      intervalPlot({ mean: comparison.delta.mean, low: comparison.delta.ci_lower ?? NaN, high: comparison.delta.ci_upper ?? NaN, margin: comparison.margin, verdict: comparison.verdict, bounds: comparison.interval }),
      el("figcaption", null, figuresLine(comparison))),
    model.meta.failed_only && el("p", { class: "notice" }, `Only the ${countText(model.count, "case")} that did not pass in one of the runs are in this report (--failed-only); the figures are those of all.`),
    el("div", { class: "flips" }, flipColumn(model, BROKEN, filterBy), flipColumn(model, FIXED, filterBy)),
    el("div", { class: "two-runs" }, [before, after].map((run) => el("section", null,
      el("h2", null, `${run.letter}: ${run.headline}`), el("p", { class: "facts small" }, `${run.facts}.`),
      run.troubles && el("p", { class: "troubles" }, `! ${run.troubles}.`), el("details", null, el("summary", null, "about this run"), aboutRun(run))))),
    plots(model, filterBy),
    errorGroups(after.figures, filterBy));
}

function figuresLine({ mean1, mean2, passes, tests, mde, pairs, margin, unchanged }) {
  const p = (value) => (value < 0.0001 ? "p < 0.0001" : `p = ${Number(value.toPrecision(2))}`);
  return [
    `Mean ${scoreText(mean1)} to ${scoreText(mean2)} over ${countText(pairs, "pair")}`,
    passes && `${passes.passed1} to ${passes.passed2} passed`,
    ...tests.map((test) => `${test.name} ${p(test.p_value)}`),
    mde && `can detect ${signedText(mde).replace("+", "")}`,
    `margin ${margin}`,
    unchanged?.delta && `only the ${countText(unchanged.pairs, "pair")} of which nothing else changed: ${signedText(unchanged.delta.mean)}`,
  ].filter(Boolean).join(" · ");
}

function flipColumn(model, kind, filterBy) {
  const rows = [];
  for (const row of model.order("worst", false)) if (model.flips[row] === kind) rows.push(row);
  const [word, sign, none] = kind === BROKEN ? ["broken", "▼", "Nothing that passed fails now."] : ["fixed", "▲", "Nothing that failed passes now."];
  return el("section", { class: `flip ${word}` },
    el("h2", null, el("span", { "aria-hidden": "true" }, `${sign} `), `${rows.length.toLocaleString("en")} ${word}`, el("small", null, kind === BROKEN ? " pass → fail" : " fail → pass")),
    rows.length === 0 && el("p", { class: "quiet" }, none),
    el("ul", null, rows.slice(0, SHOWN_FLIPS).map((row) => el("li", null,
      el("a", { href: routeHash(rowRoute(model, row)) }, model.id(row)),
      el("span", { class: "number" }, `${scoreText(model.base.rowScores[row])} → ${scoreText(model.run.rowScores[row])}`)))),
    rows.length > SHOWN_FLIPS && el("button", { type: "button", class: "more", on: { click: () => filterBy(`flip:${word}`) } }, `show all ${rows.length}`));
}
