// @ts-check
/** The header of a comparison: verdict, confidence interval and flipped cases. */

/**
 * @import { ComparisonMeta, RunMeta } from "../contract"
 * @import { Model } from "./model.js"
 * @import { FilterBy } from "./plots.js"
 */

import { button, decorative, el, elWith } from "./dom.js";
import { BROKEN, ERRORED, FIXED, FLIPS } from "./figures.js";
import { countText, numberText, scoreText, signedText } from "./format.js";
import {
  aboutRun,
  errorGroups,
  figureTable,
  headline,
  omittedNotice,
  plots,
  shortName,
} from "./header.js";
import { intervalPlot } from "./plots.js";
import { routeHash, rowRoute } from "./route.js";

const SHOWN_FLIPS = 8;

/**
 * Return the header of a page that compares two runs.
 * @param {Model} model
 * @param {ComparisonMeta} comparison
 * @param {FilterBy} filterBy
 * @param {AbortSignal} signal ends the header
 */
export function comparisonHeader(model, comparison, filterBy, signal) {
  const [before, after] = model.runs.map((run) => run.meta);
  const title = [
    "Comparison of ",
    el("b", shortName(before.file)),
    " (A) with ",
    el("b", shortName(after.file)),
    " (B)",
  ];
  const notes = comparison.notes.map((note) => el("li", note));
  return el(
    "header.summary",
    el("p.kicker", title),
    headline(model.meta.headline),
    el("ul.notes", notes),
    differenceFigure(comparison),
    omittedNotice(model),
    el(
      "div.flips",
      flipColumn(model, BROKEN, filterBy),
      flipColumn(model, FIXED, filterBy),
      model.flips.includes(ERRORED) && flipColumn(model, ERRORED, filterBy),
    ),
    metricChanges(comparison),
    el("div.two-runs", runSection(before), runSection(after)),
    plots(model, filterBy, signal),
    errorGroups(after.figures, filterBy),
  );
}

/** @param {ComparisonMeta} comparison */
function metricChanges({ metrics }) {
  const rows = metrics.map(({ name, value1, value2, delta, interval }) => {
    return [name, value1, value2, delta, interval];
  });
  return figureTable("Metrics", ["", "A", "B", "change", "95% interval of the change"], rows);
}

/** @param {ComparisonMeta} comparison */
function differenceFigure(comparison) {
  const { delta, margin, verdict, interval } = comparison;
  if (!delta) return null;
  const plot = intervalPlot({
    mean: delta.mean,
    low: delta.ci_lower ?? NaN,
    high: delta.ci_upper ?? NaN,
    margin,
    verdict,
    bounds: interval,
  });
  const caption = el("figcaption", figuresLine(comparison));
  return el("figure.difference", plot, caption);
}

/** @param {ComparisonMeta} comparison */
function figuresLine({ mean1, mean2, passes, tests, mde, pairs, margin, unchanged }) {
  const means = `Mean ${scoreText(mean1)} to ${scoreText(mean2)}`;
  const facts = [`${means} over ${countText(pairs, "pair")}`];
  if (passes) facts.push(`${passes.passed1} to ${passes.passed2} passed`);
  for (const test of tests) facts.push(`${test.name} ${pValueText(test.p_value)}`);
  if (mde) facts.push(`minimum detectable effect ${signedText(mde).replace("+", "")}`);
  facts.push(`margin ${margin}`);
  if (unchanged?.delta) {
    const comparable = countText(unchanged.pairs, "pair");
    const difference = signedText(unchanged.delta.mean);
    facts.push(`only the ${comparable} in which nothing else changed: ${difference}`);
  }
  return facts.join(" · ");
}

/** @param {number} value */
function pValueText(value) {
  return value < 0.0001 ? "p < 0.0001" : `p = ${Number(value.toPrecision(2))}`;
}

const FLIP_TEXTS = {
  [BROKEN]: { change: " pass → fail", none: "No case that passed in A fails in B." },
  [FIXED]: { change: " fail → pass", none: "No case that failed in A passes in B." },
  [ERRORED]: { change: " error or not judged in A or B", none: "" },
};

/**
 * Return the section of the broken, fixed or errored cases.
 * @param {Model} model
 * @param {typeof BROKEN | typeof FIXED | typeof ERRORED} kind
 * @param {FilterBy} filterBy
 */
function flipColumn(model, kind, filterBy) {
  const { word, sign } = FLIPS[kind];
  const { change, none } = FLIP_TEXTS[kind];
  const rows = model.order("worst", false).filter((row) => model.flips[row] === kind);
  const items = [...rows.subarray(0, SHOWN_FLIPS)].map((row) => flipItem(model, row));
  const showAll = () => filterBy(`flip:${word}`);
  return elWith(
    "section",
    { class: `flip ${word}` },
    el(
      "h2",
      decorative("span", `${sign} `),
      `${numberText(rows.length)} ${word}`,
      el("small", change),
    ),
    rows.length === 0 && el("p.quiet", none),
    el("ul", items),
    rows.length > SHOWN_FLIPS && button("more", showAll, `show all ${rows.length}`),
  );
}

/**
 * @param {Model} model
 * @param {number} row
 */
function flipItem(model, row) {
  const [before, after] = model.runs.map((run) => scoreText(run.cases.scores[row]));
  return el(
    "li",
    elWith("a", { href: routeHash(rowRoute(model, row)) }, model.id(row)),
    el("span.number", `${before} → ${after}`),
  );
}

/** @param {RunMeta} run */
function runSection(run) {
  return el(
    "section",
    el("h2", `${run.letter}: ${run.headline}`),
    el("p.facts.small", `${run.facts}.`),
    run.troubles && el("p.troubles", `! ${run.troubles}.`),
    el("details", el("summary", "about this run"), aboutRun(run)),
  );
}
