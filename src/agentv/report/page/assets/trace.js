/** The trace of an agent: a timeline of its steps, each on a line that opens. */

import { el } from "./dom.js";
import { countText, durationText } from "./format.js";
import { codeBlock, longText, oneLine, valueText } from "./texts.js";

const KINDS = { model_step: "model", tool_call: "tool", tool_result: "result", message: "message", error: "error" };
const SHOWN_STEPS = 250;

/** Returns the timeline of a result, or a sentence on why there is none; `whose` follows the title. */
export function traceSection(result, left_out, whose = "") {
  const events = Array.isArray(result.trace) ? result.trace.filter((event) => event && typeof event === "object") : [];
  if (!events.length) {
    const tools = result.trace_summary?.toolCallsByName;
    if (!tools || !Object.keys(tools).length) return null;
    return el("section", { class: "trace" }, el("h2", null, `Steps${whose}`),
      el("p", { class: "tools" }, Object.entries(tools).map(([name, count]) => el("span", { class: "tool-count" }, `${name} × ${count}`))),
      el("p", { class: "quiet" }, left_out ? "Traces were left out of this report (--no-traces)." : "The trace is not in the results: run with --include-trace to see each step."));
  }
  const times = stepTimes(events);
  const list = el("ol", { class: "steps" }, events.slice(0, SHOWN_STEPS).map((event, at) => step(event, at, times)));
  const more = events.length > SHOWN_STEPS && el("button", { type: "button", class: "more", on: { click: () => {
    list.append(...events.slice(SHOWN_STEPS).map((event, at) => step(event, at + SHOWN_STEPS, times)));
    more.remove();
  } } }, `show all ${countText(events.length, "step")}`);
  const took = times.total > 0 ? `, ${durationText(times.total)}` : "";
  return el("section", { class: "trace" }, el("h2", null, `Steps${whose} `, el("small", null, `${countText(events.length, "step")}${took}`)), list, more);
}

/** Finds when each step starts and how long it takes: as it says itself, else until the next one. */
function stepTimes(events) {
  const stamps = events.map((event) => Date.parse(event.timestamp));
  const known = stamps.filter((time) => !Number.isNaN(time));
  const first = Math.min(...known);
  const spans = events.map((event, at) => {
    const own = Number(event.metadata?.duration_ms ?? event.metadata?.durationMs);
    const next = stamps.slice(at + 1, at + 20).find((time) => !Number.isNaN(time));
    const took = Number.isFinite(own) ? own : Number.isNaN(stamps[at]) || next === undefined ? NaN : next - stamps[at];
    return { start: stamps[at] - first, took };
  });
  const total = Math.max(0, ...spans.map(({ start, took }) => (Number.isNaN(start) ? 0 : start + (took || 0))));
  const longest = Math.max(0, ...spans.map(({ took }) => took || 0));
  return { spans, total, longest };
}

function step(event, at, { spans, longest }) {
  const kind = KINDS[event.type] ?? String(event.type ?? "step");
  const isError = event.type === "error" || event.metadata?.is_error === true;
  const { took } = spans[at];
  const given = event.input !== undefined && event.input !== null;
  const got = event.output !== undefined && event.output !== null;
  const bar = longest > 0 && took >= 0 && el("span", { class: "span", "aria-hidden": "true" }, el("span", { class: "span-fill", style: { width: `${(took / longest) * 100}%` } }));
  const details = el("details", { class: isError ? "step failed" : "step" },
    el("summary", null,
      el("span", { class: "step-number" }, at + 1),
      el("span", { class: `kind ${kind}` }, isError ? "! error" : kind),
      el("span", { class: "step-name" }, event.name ?? ""),
      el("span", { class: "step-line" }, given ? oneLine(event.input) : "", given && got ? " → " : "", got ? oneLine(event.output) : "", event.text ? oneLine(event.text) : ""),
      bar || el("span", { class: "span" }),
      el("span", { class: "step-time number" }, Number.isFinite(took) ? durationText(took) : "")));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    details.append(el("div", { class: "step-body" },
      given && [el("h3", null, "input"), longText(valueText(event.input), codeBlock)],
      got && [el("h3", null, "output"), longText(valueText(event.output), codeBlock)],
      event.text && [el("h3", null, "text"), longText(event.text)],
      event.metadata && [el("h3", null, "metadata"), longText(valueText(event.metadata), codeBlock)],
      !given && !got && !event.text && !event.metadata && el("p", { class: "quiet" }, "nothing else is known of this step")));
  });
  return el("li", null, details);
}
