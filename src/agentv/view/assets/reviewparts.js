// @ts-check
/** The parts of an answer other than its text: the conversation, tool calls and changed files. */

/**
 * @import { BlindCase, ReviewToolCall, ReviewMessage } from "../contract"
 * @import { Child } from "./dom.js"
 */

import { el } from "./dom.js";
import { patchBlock } from "./patch.js";
import { codeBlock, longText, valueText } from "./texts.js";

/**
 * Return the sections that an answer has.
 * @param {BlindCase} shown
 * @returns {Child[]}
 */
export function answerParts(shown) {
  const counts = Object.entries(shown.tool_counts);
  return [
    shown.conversation.length > 0 && wide("Conversation", shown.conversation.map(message)),
    shown.tool_calls.length > 0 && wide("Tool calls", shown.tool_calls.map(call)),
    counts.length > 0 && wide("Tool calls", toolCounts(counts)),
    shown.file_changes !== null && wide("Changed files", longText(shown.file_changes, patchBlock)),
  ];
}

/**
 * @param {string} title
 * @param {Child} content
 */
function wide(title, content) {
  return el("section.wide", el("h3", title), content);
}

/** @param {ReviewMessage} shown */
function message({ role, text, calls }) {
  return el(
    "div.message",
    el("p.speaker", role),
    text.trim() !== "" && longText(text),
    calls.map(call),
  );
}

/** @param {ReviewToolCall} shown */
function call({ tool, input, output }) {
  return el(
    "div.call",
    el("p.call-name", tool),
    input !== null && [callPart("input"), longText(valueText(input), codeBlock)],
    output !== null && [callPart("output"), longText(valueText(output), codeBlock)],
  );
}

/** @param {string} title */
function callPart(title) {
  return el("p.call-part", title);
}

/**
 * Return the number of calls per tool, for an answer whose tool calls were not stored.
 * @param {[string, number][]} counts
 */
function toolCounts(counts) {
  const tools = counts.map(([name, count]) => {
    return el("span.tool-count", `${name} × ${count}`);
  });
  const reason = "The tool calls are not in the results: run with --include-trace to record them.";
  return [el("p.tools", tools), el("p.quiet", reason)];
}
