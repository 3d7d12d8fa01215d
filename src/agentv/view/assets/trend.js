/** The means of runs over time, with their intervals: a plot that is read from left to right. */

import { el, svg } from "./dom.js";
import { countText, scoreText, timeText } from "./format.js";

const HEIGHT = 190, LEFT = 34, RIGHT = 14, TOP = 12, BOTTOM = 24;
const WIDEST = 1436, MOST_PER_PIXEL = 1 / 6;

/** Returns the plot of these runs, newest first as they come; nothing if fewer than two have a mean. */
export function trend(runs, room) {
  const width = Math.max(260, Math.min(WIDEST, room));
  const known = runs.filter((run) => Number.isFinite(run.mean)).slice(0, Math.floor(width * MOST_PER_PIXEL)).reverse();
  if (known.length < 2) return null;
  const [low, high] = bounds(known);
  const x = (at) => LEFT + ((at + 0.5) / known.length) * (width - LEFT - RIGHT);
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const grid = [0, 1, 2, 3, 4].map((step) => low + ((high - low) * step) / 4);
  const path = known.map((run, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(run.mean).toFixed(1)}`).join("");
  return el("figure", { class: "trend" },
    el("figcaption", null, el("b", null, "Mean score"), ` of ${countText(known.length, "run")}, oldest first, with 95% intervals`),
    svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": describe(known) },
      grid.map((value) => [svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
        svg("text", { x: LEFT - 8, y: y(value) + 4, class: "tick", "text-anchor": "end" }, value.toFixed(2).replace(/0$/, ""))]),
      svg("path", { d: path, class: "line" }),
      known.map((run, at) => mark(run, x(at), y)),
      ends(known, x)));
}

function mark(run, x, y) {
  const interval = Number.isFinite(run.low) && svg("line", { x1: x, x2: x, y1: y(run.low), y2: y(run.high), class: "reach" });
  const dot = svg("circle", { cx: x, cy: y(run.mean), r: 5, class: "mean" });
  const text = svg("title", null, `${run.name}: ${meanText(run)}`);
  const inside = [svg("rect", { x: x - 9, y: TOP, width: 18, height: HEIGHT - TOP - BOTTOM, class: "catch" }), interval, dot, text];
  return run.id ? svg("a", { href: `/run/${run.id}`, "aria-label": `${run.name}, ${meanText(run)}`, tabindex: "-1" }, inside) : svg("g", null, inside);
}

/** Returns when the first and the last of the runs were. */
function ends(known, x) {
  const day = (run) => (run.started ?? "").slice(0, 10);
  const at = known.length - 1;
  return [svg("text", { x: x(0) - 8, y: HEIGHT - 5, class: "tick" }, day(known[0])),
    day(known[at]) !== day(known[0]) && svg("text", { x: x(at) + 8, y: HEIGHT - 5, class: "tick", "text-anchor": "end" }, day(known[at]))];
}

/** Returns the part of the scale from 0 to 1 that has all that is drawn, in fifths. */
function bounds(known) {
  const all = known.flatMap((run) => [run.mean, run.low, run.high]).filter(Number.isFinite);
  const low = Math.max(0, Math.floor(Math.min(...all) * 5) / 5), high = Math.min(1, Math.ceil(Math.max(...all) * 5) / 5);
  return high - low < 0.2 ? [Math.max(0, high - 0.2), Math.max(0.2, high)] : [low, high];
}

export function meanText({ mean, low, high }) {
  if (!Number.isFinite(mean)) return "–";
  return Number.isFinite(low) ? `${scoreText(mean)} (${scoreText(low)} to ${scoreText(high)})` : scoreText(mean);
}

function describe(known) {
  const first = known[0], last = known.at(-1);
  return `mean score of ${countText(known.length, "run")}: from ${meanText(first)} on ${timeText(first.started)} to ${meanText(last)} on ${timeText(last.started)}`;
}
