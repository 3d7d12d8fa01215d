// @ts-check
/** The means of runs over time with their confidence intervals. */

/**
 * @import { Run } from "../contract"
 * @import { Child } from "./dom.js"
 */

import { el, svg } from "./dom.js";
import { countText, isNumber, scoreText, timeText } from "./format.js";

/** @typedef {Run & { mean: number }} ScoredRun */

const HEIGHT = 190;
const LEFT = 34;
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 24;
const NARROWEST = 260;
const WIDEST = 1436;
const PIXELS_PER_RUN = 6;
/** The scale consists of whole fifths, at least one. */
const SCALE_STEP = 0.2;

/**
 * Return the plot of runs, given newest first, or null if fewer than two have a mean.
 * @param {Run[]} runs
 * @param {number} room in pixels
 */
export function trend(runs, room) {
  const width = Math.max(NARROWEST, Math.min(WIDEST, room));
  const newest = runs.filter(isScored).slice(0, Math.floor(width / PIXELS_PER_RUN));
  const known = newest.toReversed();
  if (known.length < 2) return null;
  const plot = new TrendPlot(known, width);
  const caption = ` of ${countText(known.length, "run")}, oldest first, with 95% intervals`;
  return el("figure.trend", el("figcaption", el("b", "Mean score"), caption), plot.draw());
}

/**
 * Return the mean of a run with its confidence interval.
 * @param {Run} run
 */
export function meanText({ mean, low, high }) {
  if (!isNumber(mean)) return "–";
  if (!isNumber(low)) return scoreText(mean);
  return `${scoreText(mean)} (${scoreText(low)} to ${scoreText(high)})`;
}

/**
 * @param {Run} run
 * @returns {run is ScoredRun}
 */
function isScored(run) {
  return isNumber(run.mean);
}

class TrendPlot {
  /**
   * @param {ScoredRun[]} runs oldest first
   * @param {number} width
   */
  constructor(runs, width) {
    this.runs = runs;
    this.width = width;
    const [low, high] = scaleOf(runs);
    this.low = low;
    this.high = high;
  }

  /** @param {number} at */
  #x(at) {
    return LEFT + ((at + 0.5) / this.runs.length) * (this.width - LEFT - RIGHT);
  }

  /** @param {number} value */
  #y(value) {
    return TOP + ((this.high - value) / (this.high - this.low)) * (HEIGHT - TOP - BOTTOM);
  }

  draw() {
    const { runs } = this;
    const points = runs.map(
      (run, at) => `${this.#x(at).toFixed(1)} ${this.#y(run.mean).toFixed(1)}`,
    );
    const path = `M${points.join("L")}`;
    return svg(
      "svg",
      { viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "img", "aria-label": this.#description() },
      this.#grid(),
      svg("path.line", { d: path }),
      runs.map((run, at) => this.#mark(run, this.#x(at))),
      this.#days(),
    );
  }

  /** @returns {Child[]} */
  #grid() {
    return [0, 1, 2, 3, 4].map((step) => {
      const value = this.low + ((this.high - this.low) * step) / 4;
      const y = this.#y(value);
      const label = value.toFixed(2).replace(/0$/, "");
      return [
        svg("line.grid", { x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }),
        svg("text", { x: LEFT - 8, y: y + 4, class: "tick", "text-anchor": "end" }, label),
      ];
    });
  }

  /**
   * @param {ScoredRun} run
   * @param {number} x
   */
  #mark(run, x) {
    const { low, high, mean } = run;
    const area = { x: x - 9, y: TOP, width: 18, height: HEIGHT - TOP - BOTTOM };
    const hasInterval = isNumber(low) && isNumber(high);
    const text = meanText(run);
    const content = [
      svg("rect.catch", area),
      hasInterval && svg("line.reach", { x1: x, x2: x, y1: this.#y(low), y2: this.#y(high) }),
      svg("circle.mean", { cx: x, cy: this.#y(mean), r: 5 }),
      svg("title", {}, `${run.name}: ${text}`),
    ];
    if (!run.id) return svg("g", {}, content);
    const label = `${run.name}, ${text}`;
    return svg("a", { href: `/run/${run.id}`, "aria-label": label, tabindex: "-1" }, content);
  }

  /**
   * Return the dates of the first and the last run.
   * @returns {Child[]}
   */
  #days() {
    const last = this.runs.length - 1;
    const firstDay = dayOf(this.runs[0]);
    const lastDay = dayOf(this.runs[last]);
    const y = HEIGHT - 5;
    const atEnd = { x: this.#x(last) + 8, y, class: "tick", "text-anchor": "end" };
    return [
      svg("text.tick", { x: this.#x(0) - 8, y }, firstDay),
      lastDay !== firstDay && svg("text", atEnd, lastDay),
    ];
  }

  #description() {
    const first = this.runs[0];
    const last = this.runs[this.runs.length - 1];
    const count = countText(this.runs.length, "run");
    const from = `${meanText(first)} on ${timeText(first.started ?? "")}`;
    const to = `${meanText(last)} on ${timeText(last.started ?? "")}`;
    return `mean score of ${count}: from ${from} to ${to}`;
  }
}

/** @param {Run} run */
function dayOf({ started = "" }) {
  return started.slice(0, 10);
}

/**
 * Return the part of the scale from 0 to 1 that covers all means and intervals.
 * @param {ScoredRun[]} runs
 * @returns {[number, number]}
 */
function scaleOf(runs) {
  const values = runs.flatMap(({ mean, low, high }) => [mean, low, high]).filter(isNumber);
  const low = Math.max(0, Math.floor(Math.min(...values) * 5) / 5);
  const high = Math.min(1, Math.ceil(Math.max(...values) * 5) / 5);
  if (high - low >= SCALE_STEP) return [low, high];
  return [Math.max(0, high - SCALE_STEP), Math.max(SCALE_STEP, high)];
}
