// @ts-check
/** Small plots without legends. Clicking one filters the cases. */

/**
 * @import { EvaluatorRow } from "../contract"
 * @import { Child } from "./dom.js"
 */

import { BIN_EDGES, BIN_VERDICTS } from "./constants.js";
import { button, decorative, el, elWith, srOnly, svg } from "./dom.js";
import { countText, isNumber, numberText, percentText, scoreText, signedText } from "./format.js";
import { BORDERLINE, FAIL, PASS, stateOfVerdictBits, STATES } from "./states.js";

/**
 * Filters the table of cases.
 * @typedef {(query: string) => void} FilterBy
 */

const SHOWN_EVALUATORS = 8;

// the distribution of scores

/**
 * Return the distribution of scores: a bar per bin, each of which is a button that filters.
 * @param {number[]} counts
 * @param {number[] | undefined} baseCounts those of the older run of a comparison
 * @param {FilterBy} filterBy
 */
export function histogram(counts, baseCounts, filterBy) {
  const largest = Math.max(1, ...counts, ...(baseCounts ?? []));
  /** @param {number} count */
  const height = (count) => ({ height: `${(count / largest) * 100}%` });
  const edges = [0, ...BIN_EDGES, 1];
  const bars = counts.map((count, bin) => {
    const low = edges[bin];
    const high = edges[bin + 1];
    const before = baseCounts ? `, before ${baseCounts[bin]}` : "";
    const title = `score ${low} to ${high}: ${countText(count, "case")}${before}`;
    const { key } = STATES[stateOfVerdictBits(BIN_VERDICTS[bin])];
    return button(
      { class: "bar", title },
      () => filterBy(binQuery(low, high)),
      el("span.bar-count", numberText(count), srOnly(" cases with a score of ")),
      el(
        "span.bar-room",
        baseCounts && elWith("span.bar-base", { style: height(baseCounts[bin]) }),
        elWith(`span.bar-fill.${key}`, { style: height(count) }),
      ),
      el("span.bar-name", `${low}–${high}`),
    );
  });
  return el("div.histogram", bars);
}

/**
 * @param {number} low
 * @param {number} high
 */
function binQuery(low, high) {
  if (low === 0) return `score<${high}`;
  if (high === 1) return `score>=${low}`;
  return `score>=${low} score<${high}`;
}

// evaluators

/**
 * Return the table of evaluators, worst first: mean with its interval, pass rate, failures.
 * @param {EvaluatorRow[]} evaluators
 * @param {EvaluatorRow[] | undefined} base those of the older run of a comparison
 * @param {(name: string) => void} showJudgedBy
 * @returns {Child[]}
 */
export function evaluatorTable(evaluators, base, showJudgedBy) {
  const meansBefore = new Map((base ?? []).map((each) => [each.name, each.mean]));
  const showsFailures = evaluators.some((each) => each.failures);
  /** @param {EvaluatorRow} each */
  const drawRow = (each) => {
    const title = `show the cases that ${each.name} judged`;
    const name = each.name || "(no name)";
    return el(
      "tr",
      elWith(
        "th",
        { scope: "row" },
        button({ class: "plain", title }, () => showJudgedBy(each.name), name),
      ),
      el("td.dot-cell", dotPlot(each, meansBefore.get(each.name))),
      el("td.number", scoreText(each.mean)),
      el("td.number", percentText(each.pass_rate)),
      showsFailures && el("td.number", each.failures || "–"),
    );
  };
  const body = el("tbody", evaluators.slice(0, SHOWN_EVALUATORS).map(drawRow));
  const others = evaluators.slice(SHOWN_EVALUATORS);
  const showOthers = () => {
    body.append(...others.map(drawRow));
    more.remove();
  };
  const more = button("more", showOthers, `show all ${evaluators.length}`);
  return [
    el("table.evaluators", evaluatorHead(Boolean(base), showsFailures), body),
    others.length > 0 && more,
  ];
}

/**
 * @param {boolean} isComparison
 * @param {boolean} showsFailures
 */
function evaluatorHead(isComparison, showsFailures) {
  /** @param {string} text */
  const numberHead = (text, title = "") =>
    elWith("th", { scope: "col", class: "number", title: title || null }, text);
  const scale = isComparison ? "0 to 1, 95% interval (A: grey)" : "0 to 1, 95% interval";
  return el(
    "thead",
    el(
      "tr",
      elWith("th", { scope: "col" }, "evaluator"),
      elWith("th", { scope: "col" }, scale),
      numberHead("mean"),
      numberHead("pass"),
      showsFailures && numberHead("failed", "how often this evaluator could not judge"),
    ),
  );
}

/**
 * Return a mean and its interval on a line from 0 to 1.
 * @param {EvaluatorRow} evaluator
 * @param {number | undefined} meanBefore
 */
function dotPlot({ mean, low, high }, meanBefore) {
  /** @param {number} value */
  const x = (value) => 4 + value * 92;
  const hasInterval = low !== null && high !== null;
  const interval = hasInterval ? `, 95% ${scoreText(low)} to ${scoreText(high)}` : "";
  const before = meanBefore === undefined ? "" : `, in A ${scoreText(meanBefore)}`;
  const props = {
    viewBox: "0 0 100 12",
    class: "dot-plot",
    role: "img",
    "aria-label": `mean ${scoreText(mean)}${interval}${before}`,
    preserveAspectRatio: "none",
  };
  return svg(
    "svg",
    props,
    svg("line.axis", { x1: 4, x2: 96, y1: 6, y2: 6 }),
    hasInterval && svg("line.interval", { x1: x(low), x2: x(high), y1: 6, y2: 6 }),
    meanBefore !== undefined && upright(x(meanBefore), "before"),
    upright(x(mean), "mean"),
  );
}

/**
 * @param {number} x
 * @param {string} name
 */
function upright(x, name) {
  return svg("line", { x1: x, x2: x, y1: 1.5, y2: 10.5, class: name });
}

// the difference between two runs

/**
 * @typedef {object} Difference
 * @property {number} mean
 * @property {number} low NaN if there is no interval
 * @property {number} high
 * @property {number} margin the non-inferiority margin
 * @property {string} verdict
 * @property {[number, number] | null} bounds for any scores of the pairs without one
 */

/**
 * Return a plot of a difference and its interval, with zero and the margin marked.
 * @param {Difference} difference
 * @returns {Child[]}
 */
export function intervalPlot({ mean, low, high, margin, verdict, bounds }) {
  const middle = 22;
  const values = [low, high, mean, margin * 1.5, ...(bounds ?? [])].filter(isNumber);
  const reach = Math.max(0.05, ...values.map(Math.abs)) * 1.15;
  /** @param {number} value */
  const x = (value) => `${(50 + (value / reach) * 49).toFixed(2)}%`;
  /**
   * @param {number} from
   * @param {number} to
   * @param {string} name
   */
  const line = (from, to, name) =>
    svg("line", { x1: x(from), x2: x(to), y1: middle, y2: middle, class: name });
  /**
   * @param {number} at
   * @param {number} half
   * @param {string} name
   */
  const mark = (at, half, name) =>
    svg("line", { x1: x(at), x2: x(at), y1: middle - half, y2: middle + half, class: name });
  const side = STATES[verdictState(verdict)].key;
  const hasInterval = isNumber(low);
  const interval = hasInterval ? `, 95% ${signedText(low)} to ${signedText(high)}` : "";
  const text = `difference ${signedText(mean)}${interval}; margin ${signedText(-margin)}`;
  const marginWidth = `${((margin / reach) * 49).toFixed(2)}%`;
  const drawing = svg(
    "svg",
    { class: "interval-plot", role: "img", "aria-label": text },
    svg("rect.margin", { x: x(-margin), y: 6, width: marginWidth, height: 32 }),
    line(-reach, reach, "axis"),
    mark(0, 20, "zero"),
    bounds && line(bounds[0], bounds[1], "bounds"),
    hasInterval && [
      line(low, high, `reach ${side}`),
      mark(low, 7, `reach end ${side}`),
      mark(high, 7, `reach end ${side}`),
    ],
    svg("circle", { cx: x(mean), cy: middle, r: 8, class: `middle ${side}` }),
  );
  const ends = decorative(
    "div.interval-ends",
    el("span", "◂ worse"),
    el("span", "0"),
    el("span", "better ▸"),
  );
  return [drawing, ends];
}

/** @param {string} verdict */
function verdictState(verdict) {
  if (verdict === "better") return PASS;
  return verdict === "worse" ? FAIL : BORDERLINE;
}
