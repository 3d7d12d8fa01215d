// @ts-check
/** The trace of an agent: a timeline of its steps, each on an expandable line. */

/**
 * @import { Child } from "./dom.js"
 * @import { Result } from "./model.js"
 */

import { button, decorative, el, elWith } from "./dom.js";
import { countText, durationText, isNumber } from "./format.js";
import { codeBlock, longText, oneLine, valueText } from "./texts.js";

/**
 * A step of a trace. Its fields are not validated.
 * @typedef {Record<string, any>} TraceEvent
 */

/**
 * When steps started and how long they took, in milliseconds; NaN if unknown.
 * @typedef {object} StepTimes
 * @property {number[]} durations
 * @property {number} total
 * @property {number} longest
 */

/**
 * Short names of types of steps.
 * @type {Record<string, string>}
 */
const KINDS = {
  model_step: "model",
  tool_call: "tool",
  tool_result: "result",
};
const SHOWN_STEPS = 250;
/** How many steps to look ahead for the end time of a step. */
const LOOK_AHEAD = 19;

/**
 * Return the timeline of a result, or an explanation if it has no trace.
 * @param {Result} result
 * @param {boolean} areOmitted whether the report was made without traces
 * @param {string} suffix follows the title
 */
export function traceSection(result, areOmitted, suffix = "") {
  /** @type {TraceEvent[]} */
  const trace = Array.isArray(result.trace) ? result.trace : [];
  const events = trace.filter((event) => event && typeof event === "object");
  if (events.length === 0) return toolCounts(result, areOmitted, suffix);
  const times = stepTimes(events);
  /**
   * @param {TraceEvent} event
   * @param {number} at
   */
  const drawStep = (event, at) => step(event, at, times);
  const list = el("ol.steps", events.slice(0, SHOWN_STEPS).map(drawStep));
  const showOthers = () => {
    const others = events.slice(SHOWN_STEPS);
    list.append(...others.map((event, at) => drawStep(event, at + SHOWN_STEPS)));
    more.remove();
  };
  const count = countText(events.length, "step");
  const more = button("more", showOthers, `show all ${count}`);
  const took = times.total > 0 ? `, ${durationText(times.total)}` : "";
  const title = el("h2", `Steps${suffix} `, el("small", `${count}${took}`));
  return el("section.trace", title, list, events.length > SHOWN_STEPS && more);
}

/**
 * Return how often tools were called, for a result without a trace.
 * @param {Result} result
 * @param {boolean} areOmitted
 * @param {string} suffix
 */
function toolCounts(result, areOmitted, suffix) {
  const tools = Object.entries(result.trace_summary?.toolCallsByName ?? {});
  if (tools.length === 0) return null;
  const counts = tools.map(([name, count]) => {
    return el("span.tool-count", `${name} × ${count}`);
  });
  const reason = areOmitted
    ? "This report was written without traces (--no-traces)."
    : "The trace is not in the results: run with --include-trace to see each step.";
  return el(
    "section.trace",
    el("h2", `Steps${suffix}`),
    el("p.tools", counts),
    el("p.quiet", reason),
  );
}

/**
 * Return the duration of each step: the recorded one, otherwise the time until the next step.
 * @param {TraceEvent[]} events
 * @returns {StepTimes}
 */
function stepTimes(events) {
  const stamps = events.map((event) => Date.parse(event.timestamp));
  const first = Math.min(...stamps.filter(isNumber));
  const durations = events.map((event, at) => {
    const own = Number(event.metadata?.duration_ms ?? event.metadata?.durationMs);
    if (isNumber(own)) return own;
    const next = stamps.slice(at + 1, at + 1 + LOOK_AHEAD).find(isNumber);
    return next === undefined ? NaN : next - stamps[at];
  });
  const ends = durations.map((took, at) => {
    const start = stamps[at] - first;
    return Number.isNaN(start) ? 0 : start + (took || 0);
  });
  return {
    durations,
    total: Math.max(0, ...ends),
    longest: Math.max(0, ...durations.map((took) => took || 0)),
  };
}

/**
 * @param {TraceEvent} event
 * @param {number} at
 * @param {StepTimes} times
 */
function step(event, at, { durations, longest }) {
  const took = durations[at];
  const kind = KINDS[event.type] ?? String(event.type ?? "step");
  const isError = event.type === "error" || event.metadata?.is_error === true;
  const summary = el(
    "summary",
    el("span.step-number", at + 1),
    elWith("span", { class: `kind ${kind}` }, isError ? "! error" : kind),
    el("span.step-name", event.name ?? ""),
    el("span.step-line", stepLine(event)),
    durationBar(took, longest),
    el("span.step-time.number", isNumber(took) ? durationText(took) : ""),
  );
  const details = elWith("details", { class: isError ? "step failed" : "step" }, summary);
  details.addEventListener("toggle", () => {
    const isDrawn = details.children.length > 1;
    if (details.open && !isDrawn) details.append(stepBody(event));
  });
  return el("li", details);
}

/**
 * Return input, output and text of a step on one line.
 * @param {TraceEvent} event
 */
function stepLine({ input, output, text }) {
  const sides = [input, output].filter(isGiven).map((value) => oneLine(value));
  return [sides.join(" → "), text ? oneLine(text) : ""].join("");
}

/**
 * @param {number} took
 * @param {number} longest
 */
function durationBar(took, longest) {
  if (!(longest > 0 && took >= 0)) return el("span.span");
  const width = `${(took / longest) * 100}%`;
  const bar = elWith("span.span-fill", { style: { width } });
  return decorative("span.span", bar);
}

/** @param {TraceEvent} event */
function stepBody({ input, output, text, metadata }) {
  /** @type {Child[]} */
  const parts = [];
  if (isGiven(input)) parts.push(el("h3", "input"), longText(valueText(input), codeBlock));
  if (isGiven(output)) parts.push(el("h3", "output"), longText(valueText(output), codeBlock));
  if (text) parts.push(el("h3", "text"), longText(text));
  if (metadata) parts.push(el("h3", "metadata"), longText(valueText(metadata), codeBlock));
  if (parts.length === 0) {
    parts.push(el("p.quiet", "no further details"));
  }
  return el("div.step-body", parts);
}

/** @param {unknown} value */
function isGiven(value) {
  return value !== undefined && value !== null;
}
